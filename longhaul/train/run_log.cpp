#include "longhaul/train/run_log.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "longhaul/base/build_info.h"
#include "longhaul/base/clock.h"
#include "longhaul/base/counted.h"
#include "longhaul/base/process.h"
#include "longhaul/base/signals.h"
#include "longhaul/base/stopwatch.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/run/files.h"
#include "longhaul/train/matmul_rate.h"

namespace longhaul::train {
namespace {

/// Environment variables that change how a run behaves; no others are written down.
constexpr const char* kPrintedEnvironment[] = {
    "OMP_NUM_THREADS",    "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST", "SLURM_NTASKS",         "OMPI_COMM_WORLD_SIZE",
    "MALLOC_ARENA_MAX",   "OMP_WAIT_POLICY",      "GOMP_SPINCOUNT"};

/// Times that a save may fail in a row before the run stops.
constexpr int kSaveTries = 3;
/// Seconds of waiting for the save before that are worth a word.
constexpr double kLongWait = 1.0;

/// By the names of the groups and their operations, what this rank has sent.
Json traffic_of(comm::Ledger& ledger) {
  Json groups = Json::object();
  for (const auto& [name, counts] : ledger.counts()) {
    for (size_t v = 0; v < comm::kVerbs; ++v) {
      const auto verb = static_cast<comm::Verb>(v);
      const comm::VerbCount& count = counts[verb];
      if (count.calls == 0) continue;
      groups[name][comm::verb_name(verb)] = {{"calls", count.calls},
                                             {"bytes", count.bytes}};
    }
  }
  return groups;
}

/// "data step 5 wiki 1,024 tokens, code 512 tokens; chain 0123456789abcdef".
std::string describe_sources(const History& history) {
  std::string line = fmt::format("data step {}", history.step);
  const char* between = " ";
  for (const data::SourceCount& source : history.sources) {
    line += fmt::format("{}{} {} tokens", between, source.name, grouped(source.tokens));
    between = ", ";
  }
  return line + fmt::format("; chain {:016x}", history.batch_hash);
}

void require_writable(const fs::path& dir) {
  if (::access(dir.c_str(), W_OK | X_OK) == 0) return;
  throw to_error(fs::filesystem_error("access", dir, {errno, std::generic_category()}));
}

}  // namespace

Json layout_of(const Session& session) {
  const MeshShape& shape = session.mesh().shape();
  return {{"world", session.world->size()},
          {"pp", shape.pp},
          {"dp", shape.dp},
          {"cp", shape.cp},
          {"tp", shape.tp},
          {"zero", session.config.parallel.zero}};
}

RunLog::RunLog(const LoadedConfig& loaded, comm::Communicator& world)
    : log_(std::make_unique<Logger>()), config_(loaded.config), started_(unix_time()) {
  const fs::path& dir = config_.run.dir;
  const std::string attempt = comm::on_rank_zero(world, [&] {
    lock_.emplace(RunLock::acquire(dir));
    starts_.emplace(dir);
    *log_ = Logger::to_file(dir / kLogFile);
    metrics_.emplace(dir, *log_, config_.log.every, config_.log.tensorboard);
    return std::to_string(lock_->attempt());
  });
  attempt_ = std::stoi(attempt);
  log_->info(fmt::format("longhaul {} attempt {} {}", build_info().one_line(), attempt_,
                         utc_now()));
  if (lock_) {
    for (const std::string& note : lock_->notes()) log_->warning(note);
  }
  for (const std::string& warning : loaded.warnings) log_->warning(warning);
}

int RunLog::failed_starts(const fs::path& step_dir) const {
  const auto step = step_of(step_dir);
  return starts_ && step ? starts_->failed_starts(*step) : 0;
}

void RunLog::begin_start(int64_t step) {
  if (starts_) starts_->begin(step);
}

void RunLog::find_newest_checkpoint() {
  if (log_->silent()) return;
  const auto newest = checkpoint::find_latest(checkpoint_dir(config_));
  newest_checkpoint_ = newest ? std::optional(newest->step) : std::nullopt;
}

void RunLog::event(const char* kind, Json fields) {
  if (metrics_) metrics_->event(kind, std::move(fields));
}

void RunLog::write_head(const Session& session, const std::string& hosts) {
  log_->info(fmt::format("config {} hash {}", (config_.run.dir / kConfigFile).string(),
                         config_hash(config_)));
  log_->info("ranks " + hosts);
  log_->info(session.threads);
  for (const char* name : kPrintedEnvironment) {
    if (const char* value = std::getenv(name)) {
      log_->info(fmt::format("environment {}={}", name, value));
    }
  }
  log_->info(fmt::format(
      "model {} parameters ({} without the embedding), {} of weights and "
      "gradients, {} of "
      "optimizer state per rank",
      grouped(session.model_config.description.num_parameters()),
      grouped(session.model_config.description.num_parameters_without_embedding()),
      human_bytes(static_cast<double>(session.flat->bytes())),
      human_bytes(static_cast<double>(session.optimizer->bytes()))));
  log_->info(fmt::format("batch {} of {}: dp {} x micro {} x accumulation {}, zero {}",
                         counted(config_.batch.global_size, "sequence"),
                         counted(config_.data.seq_len, "token"), session.batch.dp,
                         config_.batch.micro_size, session.batch.accumulation,
                         config_.parallel.zero));
  const double epoch = static_cast<double>(session.train_sequences) /
                       static_cast<double>(config_.batch.global_size);
  if (epoch < 1.0) {
    log_->warning(fmt::format(
        "one batch is {:.1f} epochs: the data has {} and batch.global_size is {}",
        1.0 / epoch, counted(session.train_sequences, "sequence"),
        grouped(config_.batch.global_size)));
  }
  if (first_step_ < last_step_) {
    log_->info(fmt::format("steps {} to {} of {}; one epoch is {:.1f} steps",
                           first_step_ + 1, last_step_, total_steps_, epoch));
    return;
  }
  const char* limit = last_step_ < total_steps_ ? "run.stop_after"
                      : config_.run.steps       ? "run.steps"
                                                : "run.epochs";
  log_->info(fmt::format(
      "nothing to do: step {} of {} is done; raise {} to train further, or name another "
      "run.dir to begin anew",
      first_step_, last_step_, limit));
}

void RunLog::settle_peak(const Session& session, int64_t step, double step_rate,
                         int64_t& peak_resident) {
  if (!peak_) peak_.emplace(std::string(dtype_name(session.policy.compute)));
  // Rank 0 says whether to measure, since all do so at the same time, as they compute.
  const bool wanted = session.world->rank() == 0 &&
                      peak_->wants_measurement(step_rate, seconds_since_process_start());
  std::array<int64_t, 2> shared = {peak_resident, wanted ? 1 : 0};
  session.world->all_reduce_wait({shared.data(), 2, DType::I64}, comm::ReduceOp::Max);
  peak_resident = shared[0];
  if (shared[1] != 0) {
    const Stopwatch clock;
    const double rate = measure_matmul_rate(session.policy.compute, session.device);
    peak_->measured(rate, clock.seconds());
  }
  if (const auto line = peak_->settle(step, step_rate)) log_->info(*line);
}

void RunLog::start(const Session& session, const History& history, int64_t total_steps,
                   int64_t last_step) {
  total_steps_ = total_steps;
  last_step_ = last_step;
  first_step_ = history.step;
  flops_ = session.model_config.description.flops_per_token(config_.data.seq_len);
  const std::string mine = fmt::format("{}:{} {}", session.world->rank(), host_name(),
                                       session.mesh().coordinates());
  std::string hosts;
  for (const std::string& line : session.world->gather_strings(mine)) {
    hosts += (hosts.empty() ? "" : ", ") + line;
  }
  // Only now: a start that is refused must not replace the settings of the run.
  comm::on_rank_zero(*session.world, [&] {
    write_text_atomic(config_.run.dir / kConfigFile, to_toml(config_));
    return std::string();
  });
  const fs::path checkpoints = checkpoint_dir(config_);
  comm::on_rank_zero(*session.world, [&] {
    make_directories_durable(checkpoints);
    return std::string();
  });
  // What is wrong with it from the beginning is said now, not after hours of training.
  comm::on_all_ranks(*session.world, [&] { require_writable(checkpoints); });
  saver_.emplace(checkpoint_options(session), *session.world);
  if (read_checkpoint_) saver_->trust(*read_checkpoint_);
  if (log_->silent()) return;
  find_newest_checkpoint();
  reached_ = history.step;
  set_last_words();
  metrics_->set_goal(history.step + 1, last_step);
  carried_ = files_of_run(session);
  write_head(session, hosts);
  event(StartEvent{.attempt = attempt_,
                   .step = history.step,
                   .last_step = last_step,
                   .world = session.world->size(),
                   .job = job_id(),
                   .requeues = job_requeues(),
                   .seconds = seconds_since_process_start()});
}

void RunLog::tell_plan(const std::vector<data::SourcePlan>& plan,
                       const std::vector<data::PhaseChange>& changes) {
  for (const data::PhaseChange& change : changes) {
    if (change.of_content) {
      log_->warning(
          fmt::format("DATA CHANGED: {}; what was read of it before counts for "
                      "other data, and it is read from its beginning",
                      change.text));
    } else {
      log_->info(fmt::format("data: {}", change.text));
    }
  }
  if (!changes.empty()) {
    log_->info(
        "data: a new phase begins, where each source that was there goes on from where "
        "it stood");
  }
  for (const data::SourcePlan& source : plan) {
    log_->info(
        fmt::format("train data {}: {:.4f}% of the tokens to come, {:.3f} epochs at "
                    "step {}",
                    source.name, 100.0 * source.share, source.epochs, total_steps_));
  }
}

void RunLog::record(const Session& session, const History& history,
                    const StepOutcome& outcome) {
  const double ended = unix_time();
  int64_t peak = peak_resident_bytes();
  const double tokens_per_s = static_cast<double>(config_.batch.global_size) *
                              static_cast<double>(config_.data.seq_len) /
                              outcome.step_time;
  const double per_rank = tokens_per_s / static_cast<double>(session.world->size());
  // After the first step, which it would only delay.
  settle_peak(session, history.step, per_rank * flops_.full, peak);
  if (log_->silent()) return;
  starts_->done();
  reached_ = history.step;
  set_last_words();
  StepRecord record;
  record.step = history.step;
  record.attempt = attempt_;
  record.applied = outcome.verdict.good;
  record.time = ended;
  record.step_time = outcome.step_time;
  record.data_time = outcome.data_time;
  record.tokens = static_cast<double>(history.tokens);
  record.loss = outcome.loss;
  record.grad_norm = outcome.grad_norm;
  record.lr = outcome.lr;
  record.seqs_per_s = static_cast<double>(config_.batch.global_size) / outcome.step_time;
  record.tokens_per_s = tokens_per_s;
  record.mfu = per_rank * flops_.full / peak_->value();
  record.mfu_causal = per_rank * flops_.causal / peak_->value();
  record.tflops_per_device = per_rank * flops_.full * 1e-12;
  record.peak_tflops_per_device = peak_->value() * 1e-12;
  record.memory_peak = static_cast<double>(peak);
  record.host_memory = static_cast<double>(resident_bytes());
  record.epoch = outcome.epoch;
  SourceTokens sources;
  for (const data::SourceCount& source : history.sources) {
    sources.emplace_back(source.name, source.tokens);
  }
  metrics_->step(record, sources);
  tell_clock();
}

void RunLog::tell_clock() {
  const auto jump = clock_.look();
  if (!jump) return;
  log_->warning(describe_jump(*jump));
  event(kClockJumpEvent,
        {{"attempt", attempt_}, {"seconds", *jump}, {"host", host_name()}});
}

void RunLog::record_validation(int64_t step, const std::string& name, double loss,
                               double seconds) {
  if (!metrics_) return;
  metrics_->validation({step, attempt_, unix_time(), seconds, loss, name});
}

checkpoint::SaverOptions RunLog::saver_options(const Session& session,
                                               const fs::path& dir) const {
  checkpoint::SaverOptions options;
  options.dir = dir;
  options.attempt = attempt_;
  options.build = build_info().one_line();
  options.layout = layout_of(session);
  options.copy_threads = at::get_num_threads();
  return options;
}

checkpoint::SaverOptions RunLog::checkpoint_options(const Session& session) {
  checkpoint::SaverOptions options = saver_options(session, checkpoint_dir(config_));
  options.lock = lock_ ? &*lock_ : nullptr;
  options.keep = config_.checkpoint.keep;
  options.milestone_every = config_.checkpoint.milestone_every;
  options.read_back = config_.checkpoint.read_back;
  if (metrics_) options.tell = [this](const std::string& line) { log_->warning(line); };
  return options;
}

void RunLog::save(const History& history,
                  const std::vector<checkpoint::StateTensor>& tensors,
                  std::shared_ptr<const void> owner, bool ends) {
  log_->info(describe_sources(history));
  const bool wait = ends || !config_.checkpoint.async_;
  checkpoint::Snapshot snapshot;
  snapshot.step = history.step;
  snapshot.tensors = tensors;
  snapshot.owner = std::move(owner);
  snapshot.state = history.to_json();
  snapshot.files = carried_;
  // Where nobody goes on, nothing needs to be copied.
  if (wait && !snapshot.owner) snapshot.owner = std::make_shared<char>();
  std::optional<checkpoint::SaveReport> before;
  try {
    saver_->start(std::move(snapshot), before);
  } catch (const TemporaryError& error) {
    if (before) tell(*before);
    checkpoint::SaveReport report;
    report.step = history.step;
    report.error = error.what();
    tell(report);
    return;
  }
  if (before) tell(*before);
  if (!wait) return;
  if (auto report = saver_->wait()) {
    report->stall = report->seconds;
    tell(*report);
  }
  tell_deletions();
}

bool RunLog::settle_saves() {
  if (const auto report = saver_->poll()) tell(*report);
  tell_deletions();
  return failed_saves_ > 0 && !saver_->under_way();
}

void RunLog::finish_saves() {
  if (!saver_) return;
  if (saver_->under_way() && !log_->silent()) {
    log_->status("waiting for the checkpoint to be durable");
  }
  const auto report = saver_->wait();
  if (report) tell(*report);
  tell_deletions();
  if (failed_saves_ > 0) last_failure_.raise();
}

void RunLog::drain_saves() {
  if (const auto report = saver_->wait()) tell(*report);
  tell_deletions();
}

void RunLog::tell_bad_step(const History& history, const StepOutcome& outcome) {
  const Verdict& verdict = outcome.verdict;
  const BadStepPolicy action = verdict.action;
  const bool stops = action == BadStepPolicy::Stop;
  const auto number = [](double value) {
    return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value));
  };
  event(BadStepEvent{.attempt = attempt_,
                     .step = history.step,
                     .kind = verdict.kind,
                     .loss = number(outcome.loss),
                     .grad_norm = number(outcome.grad_norm),
                     .why = verdict.why,
                     .action = stops                           ? "stop"
                               : action == BadStepPolicy::Skip ? "skip"
                                                               : "rollback",
                     .bad_steps = history.guard.bad_steps});
  log_->warning(
      fmt::format("BAD STEP {}: {}; its update is not made", history.step, verdict.why));
  if (!stops) return;
  const std::string so_far =
      verdict.too_many
          ? fmt::format(
                "; bad were steps {}, more than resilience.max_bad_steps = {} of "
                "the last {}",
                fmt::join(history.guard.bad_steps, ", "),
                config_.resilience.max_bad_steps, config_.resilience.spike_window)
          : "";
  throw Error(
      ErrorKind::Internal, "numerics",
      fmt::format("step {}: {}; the update was not made and nothing was saved since the "
                  "last checkpoint{}; lower optimizer.lr, lengthen the warm-up, or look "
                  "at the batch{}",
                  history.step, verdict.why, so_far,
                  verdict.too_many ? ""
                                   : "; resilience.on_bad_step can skip such steps or "
                                     "roll back"));
}

void RunLog::tell(const checkpoint::SaveReport& report) {
  if (!report.error.empty()) {
    last_failure_ = report;
    const bool again =
        report.kind == ErrorKind::Temporary && ++failed_saves_ < kSaveTries;
    event(kBadSaveEvent,
          {{"step", report.step}, {"attempt", attempt_}, {"message", report.error}});
    if (!again) report.raise();
    log_->warning(
        fmt::format("CHECKPOINT FAILED: {}; the run goes on and tries again "
                    "after the next step ({} of {} tries)",
                    report.error, failed_saves_, kSaveTries));
    return;
  }
  failed_saves_ = 0;
  longest_save_ = std::max(longest_save_, report.seconds);
  if (!metrics_) return;
  newest_checkpoint_ = report.step;
  set_last_words();
  log_->info(fmt::format("checkpoint step {} saved {} in {:.1f} s stall {:.1f} s",
                         report.step, human_bytes(static_cast<double>(report.bytes)),
                         report.seconds, report.stall));
  if (report.waited > kLongWait) {
    log_->warning(fmt::format(
        "the checkpoint of step {} had to wait {:.1f} s for the one before it: "
        "checkpoint.every = {} is more often than this storage can take",
        report.step, report.waited, config_.checkpoint.every));
  }
  event(CheckpointEvent{.attempt = attempt_,
                        .step = report.step,
                        .bytes = static_cast<int64_t>(report.bytes),
                        .seconds = report.seconds,
                        .longest = longest_save_,
                        .stall = report.stall,
                        .waited = report.waited});
}

void RunLog::tell_deletions() {
  for (const std::string& note : saver_->take_notes()) log_->to_file_only(note);
}

void RunLog::save_capture(const Session& session, int64_t step,
                          const std::vector<checkpoint::StateTensor>& tensors) {
  checkpoint::Snapshot snapshot;
  snapshot.step = step;
  snapshot.tensors = tensors;
  const checkpoint::SaveReport report =
      checkpoint::save_checkpoint(saver_options(session, config_.run.dir / kCapturesDir),
                                  std::move(snapshot), *session.world);
  log_->info(fmt::format("capture step {} saved {} in {}", step,
                         human_bytes(static_cast<double>(report.bytes)),
                         report.path.string()));
}

/// What a stop at this step leaves: never more than is true.
std::string RunLog::saved_words(int64_t step) const {
  if (step == 0) return "nothing was trained, so there is nothing to save";
  if (newest_checkpoint_ == step) return "saved";
  return newest_checkpoint_ ? fmt::format("not saved: the newest checkpoint is step {}",
                                          *newest_checkpoint_)
                            : "not saved: there is no checkpoint";
}

/// Of an end at once, between saves.
void RunLog::set_last_words() const {
  const int64_t newest = newest_checkpoint_.value_or(0);
  std::string words = newest_checkpoint_
                          ? fmt::format("newest checkpoint step {}", newest)
                          : "there is no checkpoint";
  if (reached_ == newest + 1) {
    words += fmt::format("; step {} will be trained again", reached_);
  } else if (reached_ > newest) {
    words += fmt::format("; steps {} to {} will be trained again", newest + 1, reached_);
  }
  longhaul::set_last_words(words);
}

void RunLog::write_results_file(const Session& session) {
  std::string dataset;
  for (const data::WeightedSource& source : session.train_sources) {
    dataset += (dataset.empty() ? "" : ", ") + source.name;
  }
  const int64_t horizon = config_.schedule.horizon.value_or(total_steps_);
  const int64_t unreadable = write_results(
      config_.run.dir,
      {config_.model.config.string(), session.world->size(), session.batch.dp,
       config_.batch.global_size, total_steps_, config_.run.seed,
       static_cast<int64_t>(warmup_length(config_.schedule, horizon)), dataset});
  if (unreadable > 0) {
    log_->warning(
        fmt::format("{} is without {} lines of {} that cannot be read; look at the disk",
                    kResultsFile, unreadable, kMetricsFile));
  }
}

void RunLog::finish(const Session& session, const History& history,
                    const StopCause& stopped) {
  if (!metrics_) return;
  starts_->done();
  const double seconds = unix_time() - started_;
  if (session.world->size() > 1) {
    event(kTrafficEvent, {{"attempt", attempt_},
                          {"steps", history.step - first_step_},
                          {"sent", traffic_of(session.world->ledger())}});
  }
  event(EndEvent{.attempt = attempt_,
                 .step = history.step,
                 .signal = stopped.signal,
                 .stopped_by = stopped.by,
                 .seconds = seconds});
  try {
    write_results_file(session);
  } catch (const Error& problem) {
    log_->warning(fmt::format("{} was not written: {}", kResultsFile, problem.what()));
  }
  if (!stopped.by.empty()) {
    log_->info(fmt::format("stopped by {} after step {}; {}; the same command goes on",
                           stopped.by, history.step, saved_words(history.step)));
  } else {
    log_->info(fmt::format("finished step {} of {} after {}", history.step, total_steps_,
                           human_duration(seconds)));
  }
}

void RunLog::fail(const std::string& message) noexcept {
  if (!metrics_) return;
  try {
    log_->to_file_only("error: " + message);
    event(FailureEvent{attempt_, message});
  } catch (...) {
    // A full disk, most likely: standard error still gets the message.
  }
}

}  // namespace longhaul::train
