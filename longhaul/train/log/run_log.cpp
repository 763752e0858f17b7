#include "longhaul/train/log/run_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/build_info.h"
#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/process.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/hosts.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/config/load.h"
#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/families/describe.h"
#include "longhaul/run/files.h"
#include "longhaul/system/isa.h"
#include "longhaul/system/terminal.h"
#include "longhaul/train/log/environment.h"
#include "longhaul/train/log/other_results.h"
#include "longhaul/train/start/staged_inputs.h"

namespace longhaul::train {
namespace {

/// Returns what this rank has sent, by the names of groups and operations.
Json traffic_of(comm::Ledger& ledger) {
  Json groups = Json::object();
  for (const auto& [name, counts] : ledger.counts()) {
    for (size_t v = 0; v < comm::kVerbs; ++v) {
      const auto verb = static_cast<comm::Verb>(v);
      const comm::VerbCount& count = counts[verb];
      if (count.calls == 0) continue;
      groups[name][comm::verb_name(verb)] = {
          {"calls", count.calls}, {"bytes", count.bytes}, {"messages", count.messages}};
    }
  }
  return groups;
}

/// Returns the directory of TensorBoard's files; empty where none are wanted.
fs::path tensorboard_dir(const RunConfig& config) {
  if (!config.log.tensorboard) return {};
  return config.log.tensorboard_dir.empty() ? config.run.dir / run::kTensorBoardDir
                                            : config.log.tensorboard_dir;
}

/// Returns the parameters of results.json in this program's own form. "Batch size" is the
/// number of sequences of one forward pass of a replica; "Global batch size" is that of a
/// step.
Json run_parameters(const TrainingSession& session, int64_t total_steps) {
  const RunConfig& config = session.config();
  const char* const dtype =
      session.machine().policy.compute == format::DType::F32 ? "float32" : "bfloat16";
  std::string dataset;
  for (const data::WeightedSource& source : session.data().train) {
    dataset += (dataset.empty() ? "" : ", ") + source.name;
  }
  Json environment = Json::object();
  for (const auto& [name, value] : logged_environment()) environment[name] = value;
  const int64_t horizon = config.schedule.horizon.value_or(total_steps);
  const Json settings = parse_json(to_json_text(config), "the settings");
  return {{"Model", config.model.config.string()},
          {"Model configuration",
           parse_json(to_hf_config_json(session.model(), dtype), "config.json")},
          {"Parameters", session.model().description.num_parameters()},
          {"Active parameters", session.model().description.num_active_parameters()},
          {"World size", session.world().size()},
          {"Data parallel degree", session.layout().description().batch.dp},
          {"Tensor parallel degree", config.parallel.tp},
          {"Pipeline parallel degree", config.parallel.pp},
          {"Context parallel degree", config.parallel.cp},
          {"Expert parallel degree", config.parallel.ep},
          {"ZeRO stage", config.parallel.zero},
          {"Batch size", config.batch.micro_size},
          {kAccumulationParameter, session.layout().description().batch.accumulation},
          {"Batch size per replica",
           session.layout().description().batch.sequences_per_replica},
          {"Global batch size", config.batch.global_size},
          {"Sequence length", config.data.seq_len},
          {"Total steps", total_steps},
          {"Warmup steps", static_cast<int64_t>(warmup_length(config.schedule, horizon))},
          {"Seed", config.run.seed},
          {"Optimizer", settings.at("optimizer")},
          {"Schedule", settings.at("schedule")},
          {"Data type", dtype},
          {"Dataset", dataset},
          {"Version", build_info().one_line()},
          {"Environment variables", std::move(environment)}};
}

/// Returns what the other forms of results.json need besides run_parameters(). Looks at
/// the files of data.train where log.results is "bert".
ResultsFacts results_facts(const TrainingSession& session) {
  ResultsFacts facts{session.config(), session.data().train_sequences};
  if (session.config().log.results != ResultsForm::Bert) return facts;
  facts.shards = 0;
  for (const TrainSource& source : session.config().data.train) {
    std::vector<fs::path> files;
    if (source.synthetic == 0) files = local_paths(source.path, session.objects());
    if (!files.empty() && data::names_bert_shards(files.front())) {
      files = data::find_bert_shards(files);
    }
    facts.shards += std::max<int64_t>(1, static_cast<int64_t>(files.size()));
  }
  return facts;
}

}  // namespace

RunLog::RunLog(const LoadedConfig& loaded, RunStart& start, comm::Communicator& world)
    : log_(std::make_unique<system::Logger>()),
      start_(start),
      config_(loaded.config),
      attempt_(start.attempt()),
      started_(unix_time()) {
  const fs::path& dir = config_.run.dir;
  comm::on_rank_zero(world, [&] {
    *log_ = system::Logger::to_file(dir / run::kLogFile);
    metrics_.emplace(dir, *log_, config_.log.every, tensorboard_dir(config_),
                     config_.log.window);
  });
  log_->info("longhaul {} attempt {} {}", build_info().one_line(), attempt_, utc_now());
  if (start.lock() != nullptr) {
    for (const std::string& note : start.lock()->notes()) log_->warning(note);
  }
  for (const std::string& warning : loaded.warnings) log_->warning(warning);
}

void RunLog::event(const char* kind, Json fields) {
  if (!metrics_ || refused_) return;
  const Json line = run::event_line(kind, std::move(fields));
  if (held_) {
    held_->push_back(line);
  } else {
    metrics_->event(line);
  }
}

/// Writes the events that were held: from here on the start is an attempt of the run.
void RunLog::begin_events() {
  start_.use_attempt();
  for (const Json& line : *held_) metrics_->event(line);
  held_.reset();
}

/// Writes the last event of a start that leaves the run as it was.
void RunLog::refuse(const std::string& message) {
  refused_ = true;
  metrics_->event(run::event_line(run::RefusedStartEvent::kKind,
                                  run::event_fields(run::RefusedStartEvent{message})));
}

/// Says how many steps are left of run.epochs, and what of the data they leave out.
std::string RunLog::epochs_left(const TrainingSession& session,
                                const History& history) const {
  const auto per_epoch = static_cast<double>(session.data().train_sequences);
  const double had = history.cursor.sequences_of(session.data().train_sequences);
  const int64_t steps = std::max<int64_t>(0, total_steps_ - history.step);
  const double rest = *config_.run.epochs * per_epoch - had -
                      static_cast<double>(steps * config_.batch.global_size);
  std::string text =
      fmt::format("run.epochs = {:g}: {:.3f} are done, and what is left is {}",
                  *config_.run.epochs, had / per_epoch, counted(steps, "step"));
  if (rest >= 1.0) {
    text += fmt::format(
        "; the last {} of the data do not fill a batch of {} and are not trained",
        counted(static_cast<int64_t>(rest), "sequence"), config_.batch.global_size);
  }
  return text;
}

void RunLog::write_head(const TrainingSession& session, const History& history,
                        const std::string& hosts) {
  std::string facts =
      fmt::format("longhaul {} attempt {}\n", build_info().one_line(), attempt_);
  const auto tell = [&](const std::string& line) {
    log_->info(line);
    facts += line + '\n';
  };
  tell(fmt::format("config {} hash {}", (config_.run.dir / run::kConfigFile).string(),
                   config_hash(config_)));
  if (const std::string chosen = chosen_text(config_); !chosen.empty()) {
    tell(chosen);
    if (config_.parallel.chosen->ranks != session.world().size()) {
      log_->warning(fmt::format("that layout was chosen for {}, and {} train",
                                counted(config_.parallel.chosen->ranks, "rank"),
                                session.world().size()));
    }
  }
  tell("ranks " + hosts);
  tell(session.machine().threads);
  const auto whose = [&](const char* what) {
    const Json& value = session.fingerprint().at(what);
    return value.is_string() ? value.get<std::string>() : json_text(value);
  };
  tell(fmt::format("products in {}: {}",
                   format::dtype_name(session.machine().policy.compute),
                   whose("products")));
  tell("attention: " + whose("attention"));
  if (const char* why = system::amx_refusal()) log_->warning("AMX is not used: {}", why);
  for (const auto& [name, value] : logged_environment()) {
    tell(fmt::format("environment {}={}", name, value));
  }
  const ModelDescription& model = session.model().description;
  tell(fmt::format(
      "model {} ({} without the embedding{}), {} of weights and gradients, {} of "
      "optimizer state per rank",
      model.parameters_text(), grouped(model.num_parameters_without_embedding()),
      model.tied ? ", which is also the output projection" : "",
      human_bytes(session.flat().bytes()), human_bytes(session.optimizer().bytes())));
  const std::string kinds = families::layer_kinds(session.model().network);
  if (!kinds.empty()) tell("attention of the model: " + kinds);
  tell(fmt::format("batch {} of {}: dp {} x micro {} x accumulation {}, zero {}",
                   counted(config_.batch.global_size, "sequence"),
                   counted(config_.data.seq_len, "token"),
                   session.layout().description().batch.dp, config_.batch.micro_size,
                   session.layout().description().batch.accumulation,
                   config_.parallel.zero));
  const double epoch = static_cast<double>(session.data().train_sequences) /
                       static_cast<double>(config_.batch.global_size);
  if (epoch < 1.0) {
    log_->warning(
        "one batch is {:.1f} epochs: the data has {} and batch.global_size is {}",
        1.0 / epoch, counted(session.data().train_sequences, "sequence"),
        grouped(config_.batch.global_size));
  }
  if (config_.run.epochs) tell(epochs_left(session, history));
  if (first_step_ < last_step_) {
    tell(fmt::format("steps {} to {} of {}; one epoch is {:.1f} steps", first_step_ + 1,
                     last_step_, total_steps_, epoch));
  } else {
    tell(nothing_to_do());
  }
  metrics_->text("settings", to_toml(config_));
  metrics_->text("start", facts);
}

std::string RunLog::nothing_to_do() const {
  if (ended_as_decided_) {
    return fmt::format(
        "nothing to do: step {} is done, and the run ends with it, as decided for "
        "run.until or run.budget; schedule.continue = \"rewarm\" begins a new schedule, "
        "or set another run.dir to begin a new run",
        first_step_);
  }
  const char* limit = last_step_ < total_steps_ ? "run.stop_after"
                      : config_.run.steps       ? "run.steps"
                                                : "run.epochs";
  return fmt::format(
      "nothing to do: step {} of {} is done; raise {} to train further "
      "(schedule.continue chooses the learning rates), or set another run.dir to begin a "
      "new run",
      first_step_, last_step_, limit);
}

void RunLog::start(const TrainingSession& session, const History& history,
                   int64_t total_steps, int64_t last_step) {
  total_steps_ = total_steps;
  last_step_ = last_step;
  first_step_ = history.step;
  const auto& ending = history.schedule->ending;
  ended_as_decided_ = ending && history.step >= ending->end;
  const int64_t nodes = comm::count_machines(session.world());
  const std::string mine = fmt::format("{}:{} {}", session.world().rank(), host_name(),
                                       session.mesh().coordinates());
  const std::string hosts =
      fmt::format("{}", fmt::join(session.world().gather_strings(mine), ", "));
  // The settings are written here and not earlier, because a start that is refused must
  // not replace the settings of the run.
  bool idle = false;
  comm::on_rank_zero(session.world(), [&] {
    idle = first_step_ >= last_step_ && is_done(config_.run.dir);
    if (idle) return;
    write_text_atomic(config_.run.dir / run::kConfigFile, to_toml(config_));
    const fs::path events = tensorboard_dir(config_);
    if (attempt_ == 1 && run::holds_event_files(events)) {
      log_->warning(
          "{} has TensorBoard's files of another run: TensorBoard shows all files of a "
          "directory as one run; give log.tensorboard_dir a directory for each run",
          events.string());
    }
    metrics_->begin(history.step, last_step);
  });
  if (log_->silent()) return;
  write_head(session, history, hosts);
  if (idle) return refuse(nothing_to_do());
  begin_events();
  event(run::StartEvent{.attempt = attempt_,
                        .step = history.step,
                        .last_step = last_step,
                        .world = session.world().size(),
                        .job = job_id(),
                        .requeues = job_requeues(),
                        .seconds = seconds_since_process_start(),
                        .nodes = nodes});
}

void RunLog::prove_held() const {
  const run::RunLock* const lock = start_.lock();
  if (lock == nullptr) return;
  const auto is_gone = [&] {
    try {
      return lock->is_gone();
    } catch (const TemporaryError&) {
      return true;
    }
  };
  try {
    lock->check();
  } catch (const TemporaryError&) {
    // The lock cannot be read now. The next call reads it again.
  } catch (const Error&) {
    if (!is_gone()) throw;
  }
}

void RunLog::tell_rates(const optim::RunSchedule& schedule, int64_t first, int64_t last) {
  if (config_.schedule.continue_ == ContinueKind::Keep) {
    log_->info("schedule: the checkpoint's schedule is kept, whatever [schedule] says");
  }
  if (const std::string from = schedule.describe(); !from.empty()) {
    log_->info("schedule: " + from);
  }
  if (const auto& ending = schedule.basis().ending) {
    log_->info(
        "schedule: the decay begins after step {} and the run ends with step {}, as "
        "decided for {}",
        ending->begin, ending->end, counted(ending->world, "rank"));
  } else if (config_.run.ends_by_speed()) {
    const char* const key = config_.run.until ? "run.until" : "run.budget";
    const int64_t latest = optim::stable_steps(schedule.basis()).end;
    if (first < latest) {
      log_->info(
          "schedule: measured speed decides where the decay begins ({}), at the latest "
          "after step {}",
          key, latest);
    } else if (first <= last) {
      log_->warning(
          "{} decides nothing any more: the decay that the run's steps set begins after "
          "step {}, and the run goes on to step {}",
          key, latest, last);
    }
  }
  std::vector<std::string> rates;
  for (const auto& [step, rate] : optim::rate_points(schedule, first, last)) {
    rates.push_back(fmt::format("{:.6g} at step {}", rate, step));
  }
  if (!rates.empty()) log_->info("learning rate {}", fmt::join(rates, ", "));
}

void RunLog::tell_ending(run::EndDecidedEvent decided, const optim::RunSchedule& schedule,
                         int64_t last_step) {
  decided.last_step = last_step;
  if (metrics_) metrics_->ends_at(last_step);
  event(decided);
  tell_rates(schedule, decided.step + 1, last_step);
}

void RunLog::tell_plan(const std::vector<data::SourcePlan>& plan,
                       const std::vector<data::PhaseChange>& changes) {
  for (const data::PhaseChange& change : changes) {
    if (change.of_content) {
      log_->warning(
          "DATA CHANGED: {}; the changed data is read from its beginning, "
          "and the tokens that were read before count as other data",
          change.text);
    } else {
      log_->info("data: {}", change.text);
    }
  }
  if (!changes.empty()) {
    log_->info(
        "data: a new phase begins; each source that was there before goes on from its "
        "last position");
  }
  for (const data::SourcePlan& source : plan) {
    log_->info("train data {}: {:.4f}% of the tokens to come, {:.3f} epochs at step {}",
               source.name, 100.0 * source.share, source.epochs, total_steps_);
  }
}

void RunLog::record(const run::StepRecord& record,
                    const std::vector<data::SourceCount>& sources,
                    const run::PhaseMemory& memory) {
  if (log_->silent()) return;
  prove_held();
  run::SourceTokens tokens;
  for (const data::SourceCount& source : sources) {
    tokens.emplace_back(source.name, source.tokens);
  }
  metrics_->step(record, tokens, memory);
  const auto jump = clock_.look();
  if (!jump) return;
  log_->warning(describe_jump(*jump));
  event(run::kClockJumpEvent,
        {{"attempt", attempt_}, {"seconds", *jump}, {"host", host_name()}});
}

void RunLog::record_memory(int64_t step, const run::PhaseMemory& memory) {
  if (!metrics_ || refused_ || memory.empty()) return;
  metrics_->phase_memory(step, attempt_, memory);
}

void RunLog::record_validation(int64_t step, const std::string& name, double loss,
                               double seconds, const run::PairFigures& pairs) {
  if (!metrics_) return;
  prove_held();
  metrics_->validation({step, attempt_, unix_time(), seconds, loss, name, pairs});
}

void RunLog::record_task(int64_t step, const std::string& name,
                         std::vector<run::TaskFigure> figures, int64_t questions,
                         double seconds) {
  if (!metrics_) return;
  prove_held();
  metrics_->task({step,
                  attempt_,
                  unix_time(),
                  seconds,
                  run::kNoFigure,
                  name,
                  {},
                  std::move(figures),
                  questions});
}

void RunLog::record_loads(const run::ExpertLoadsEvent& loads) {
  if (metrics_) metrics_->expert_loads(loads);
}

void RunLog::tell_sample(const run::SampleEvent& sample) {
  log_->info("sample: \"{}\" -> \"{}\"", system::printable(sample.prompt),
             system::printable(sample.text));
  event(sample);
}

void RunLog::record_bad_step(const History& history, const StepOutcome& outcome) {
  const Verdict& verdict = outcome.verdict;
  const BadStepPolicy action = verdict.action;
  const bool stops = action == BadStepPolicy::Stop;
  const auto number = [](double value) {
    return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value));
  };
  event(run::BadStepEvent{.attempt = attempt_,
                          .step = history.step,
                          .kind = verdict.kind,
                          .loss = number(outcome.record.loss),
                          .grad_norm = number(outcome.record.grad_norm),
                          .why = verdict.why,
                          .action = stops                           ? "stop"
                                    : action == BadStepPolicy::Skip ? "skip"
                                                                    : "rollback",
                          .bad_steps = history.guard.bad_steps});
  log_->warning("BAD STEP {}: {}; its update is not made", history.step, verdict.why);
}

void RunLog::write_results_file(const TrainingSession& session) {
  const int64_t unreadable = write_results(
      config_.run.dir, run_parameters(session, total_steps_), results_facts(session));
  if (unreadable > 0) {
    log_->warning("{} lacks {} lines of {} that cannot be read; look at the disk",
                  run::kResultsFile, unreadable, run::kMetricsFile);
  }
}

void RunLog::finish(const TrainingSession& session, const History& history,
                    const StopCause& stopped, const std::string& saved) {
  if (!metrics_) return;
  prove_held();
  const double seconds = unix_time() - started_;
  if (session.world().size() > 1) {
    event(run::kTrafficEvent, {{"attempt", attempt_},
                               {"steps", history.step - first_step_},
                               {"sent", traffic_of(session.world().ledger())}});
  }
  event(run::EndEvent{.attempt = attempt_,
                      .step = history.step,
                      .signal = stopped.signal,
                      .stopped_by = stopped.by,
                      .seconds = seconds});
  try {
    if (!refused_) write_results_file(session);
  } catch (const Error& problem) {
    log_->warning("{} was not written: {}", run::kResultsFile, problem.what());
  }
  if (!stopped.by.empty()) {
    log_->info("stopped by {} after step {}; {}; {}", stopped.by, history.step, saved,
               stopped.then);
  } else {
    log_->info("finished step {} of {} after {}", history.step, total_steps_,
               human_duration(seconds));
  }
}

void RunLog::fail(const Error& error) noexcept {
  if (!metrics_) return;
  try {
    prove_held();
    log_->to_file_only(fmt::format("error: {}", error.what()));
    if (refused_) return;
    // A start that ends before it begins is no attempt if its settings are wrong, or if
    // all steps of the run are done.
    if (held_ && (error.exit_code() == kExitSettings || is_done(config_.run.dir))) {
      return refuse(error.what());
    }
    if (held_) begin_events();
    event(run::FailureEvent{attempt_, error.what()});
  } catch (...) {
    // Most likely the disk is full, or the run belongs to another start. Standard error
    // still gets the message.
  }
}

}  // namespace longhaul::train
