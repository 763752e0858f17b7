#include "longhaul/train/save/run_checkpoints.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "longhaul/base/build_info.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/base/refused.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/hf/peft.h"
#include "longhaul/checkpoint/home.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/format/side_files.h"
#include "longhaul/objects/address.h"
#include "longhaul/run/files.h"
#include "longhaul/run/rank_record.h"
#include "longhaul/system/open_files.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/train/save/state_capture.h"
#include "longhaul/train/start/staged_inputs.h"

namespace longhaul::train {
namespace {

/// Seconds of waiting for the previous save from which on a warning is logged.
constexpr double kLongWait = 1.0;

/// Returns a line such as "data step 5 wiki 1,024 tokens, code 512 tokens; chain
/// 0123456789abcdef".
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

/// Returns the names in the marker of the run's former directory of checkpoints, by which
/// the run knows its mirror. Returns none where the directory is still the same.
std::vector<std::string> names_before(const RunStart& start, const fs::path& dir) {
  const std::string& place = start.past().checkpoints;
  if (place.empty() || place == run::RunPast::place_of(dir)) return {};
  const auto before = run::read_checkpoints_marker(place);
  return before && before->run == start.run() ? before->names
                                              : std::vector<std::string>();
}

/// Makes the directory of checkpoints and marks it as this run's. Returns the marker on
/// rank 0. Throws unless every rank may write there a file of its size, the file system
/// of every machine does what a save needs, and all ranks see the same directory.
/// Collective.
run::CheckpointsMarker ready_directory(const TrainingSession& session,
                                       const RunStart& start) {
  const fs::path dir = checkpoint_dir(session.config());
  run::CheckpointsMarker marker;
  const Json told = Json::parse(comm::on_rank_zero(session.world(), [&] {
    make_setting_directory("checkpoint.dir", dir);
    require_writable(dir);
    checkpoint::prove_durable(dir, host_name());
    const bool marked = run::read_checkpoints_owner(dir) == start.run();
    marker.run = start.run();
    marker.run_dir = run::RunPast::place_of(session.config().run.dir);
    if (session.config().checkpoint.mirror) {
      marker.attempt = start.attempt();
      marker.names = names_before(start, dir);
      marker.names.push_back(start.goes_on_from());
    }
    marker = run::mark_checkpoints(dir, marker);
    return json_text(Json{{"run", start.run()}, {"marked", marked}});
  }));
  const double patience = told.at("marked").get<bool>() ? 0.0 : checkpoint::kNameSeconds;
  checkpoint::prove_checkpoints_dir(dir, told.at("run").get<std::string>(), patience,
                                    session.world());
  comm::on_all_ranks(session.world(), [&] {
    require_writable(dir);
    system::need_file_size(saved_bytes(session.state()), "checkpoint",
                           "a rank's part of a checkpoint");
    const bool first_here =
        session.machine().node->rank() == 0 && session.world().rank() != 0;
    if (first_here) checkpoint::prove_durable(dir, host_name());
  });
  return marker;
}

checkpoint::SaverOptions options_of(const session::Session& session, RunStart& start,
                                    RunLog& log, const run::CheckpointsMarker& marker,
                                    std::function<bool(int64_t)> held) {
  checkpoint::SaverOptions options =
      saver_options(session, checkpoint_dir(session.config()), start.attempt());
  options.lock = start.lock();
  options.marker = marker;
  if (start.lock() != nullptr) {
    // `keeps` writes the newest checkpoint into the run's record, so that a start notices
    // if that checkpoint is lost.
    options.keeps = [&start, dir = options.dir](std::optional<int64_t> newest) {
      start.keeps(newest, dir);
    };
  }
  options.keep = session.config().checkpoint.keep;
  options.milestone_every = session.config().checkpoint.milestone_every;
  options.held = std::move(held);
  options.read_back = session.config().checkpoint.read_back;
  if (!log.log().silent()) {
    options.tell = [&log](const std::string& line) { log.log().warning(line); };
  }
  return options;
}

using checkpoint::CarriedFile;

const char* hf_dtype(format::DType dtype) {
  return dtype == format::DType::F32 ? "float32" : "bfloat16";
}

bool has_tokenizer(const std::vector<CarriedFile>& files) {
  std::vector<std::string> names;
  for (const CarriedFile& file : files) names.push_back(file.name);
  return longhaul::format::has_tokenizer(names);
}

std::vector<CarriedFile> files_in(const fs::path& dir) {
  std::vector<CarriedFile> files;
  if (!fs::is_directory(dir)) return files;
  for (const std::string& name : format::hf_side_files(dir)) {
    files.push_back({name, dir / name, {}});
  }
  return files;
}

/// Adds the files that `files` lack: a tokenizer as a whole or not at all, other files by
/// name. Returns the names of the files that stay behind.
std::vector<std::string> add_missing(std::vector<CarriedFile>& files,
                                     std::vector<CarriedFile> more) {
  const bool tokenizer_known = has_tokenizer(files);
  std::vector<std::string> left;
  for (CarriedFile& file : more) {
    const bool known =
        (tokenizer_known && format::is_tokenizer_side_file(file.name)) ||
        std::ranges::any_of(files, [&](const auto& f) { return f.name == file.name; });
    if (known) {
      left.push_back(file.name);
    } else {
      files.push_back(std::move(file));
    }
  }
  return left;
}

/// Adds the files beside the run's config.json that `files` lack.
void add_files_of_config(const TrainingSession& session, system::Logger& log,
                         std::vector<CarriedFile>& files) {
  const RunConfig& config = session.config();
  const fs::path dir = session.model().source_path.parent_path();
  std::error_code error;
  if (fs::equivalent(dir, session.objects().readable(config.init.weights), error)) return;
  std::vector<CarriedFile> around = files_in(dir);
  std::erase_if(around, [](const auto& file) { return file.name == "config.json"; });
  const auto left = add_missing(files, std::move(around));
  if (!left.empty()) {
    log.info(
        "checkpoints carry the files beside the weights; the files of {} stay behind: {}",
        dir.string(), fmt::join(left, ", "));
  }
  const auto others = format::files_left_behind(dir, {});
  if (config.init.weights.empty() && !others.empty()) {
    log.info("checkpoints do not carry from {}: {}", dir.string(),
             fmt::join(others, ", "));
  }
}

/// Returns the model's side files (format/side_files.h), which checkpoints and exports
/// carry: the files of [init]'s directory, then those that only model.config's directory
/// has. A tokenizer is taken whole from the first of these directories that has one, else
/// from the first training store that has one. config.json is written anew, in the run's
/// dtype. Tells the log which files stay behind.
std::vector<CarriedFile> files_of_run(const TrainingSession& session,
                                      system::Logger& log) {
  const RunConfig& config = session.config();
  std::vector<CarriedFile> files;
  if (!config.init.weights.empty()) {
    const fs::path weights = session.objects().readable(config.init.weights);
    files = checkpoint::WeightsSource::open(weights)->files_to_carry();
    std::erase_if(files, [](const auto& file) { return file.name == "config.json"; });
  }
  add_files_of_config(session, log, files);
  for (const TrainSource& source : config.data.train) {
    if (has_tokenizer(files)) break;
    for (const fs::path& path : local_paths(source.path, session.objects())) {
      if (has_tokenizer(files)) break;
      add_missing(files, files_in(path / "tokenizer"));
    }
  }
  files.push_back(
      {"config.json",
       {},
       to_hf_config_json(session.model(), hf_dtype(session.machine().policy.compute))});
  if (session.model().description.has_base) {
    const fs::path& base = config.init.weights;
    const bool here = !objects::is_address(base);
    files.push_back(
        {checkpoint::kPeftConfig,
         {},
         checkpoint::to_peft_config(
             config.adapter, session.model(),
             here ? fs::absolute(base).lexically_normal().string() : base.string())});
  }
  return files;
}

}  // namespace

checkpoint::SaverOptions saver_options(const session::Session& session,
                                       const fs::path& dir, int attempt) {
  checkpoint::SaverOptions options;
  options.dir = dir;
  options.attempt = attempt;
  options.build = build_info().one_line();
  options.layout = session::layout_of(session);
  options.copy_threads = at::get_num_threads();
  options.look = session.layout().watch();
  return options;
}

RunCheckpoints::RunCheckpoints(const TrainingSession& session, RunStart& start,
                               RunLog& log, int64_t step)
    : log_(log),
      start_(start),
      config_(session.config()),
      world_(session.machine().world),
      marker_(ready_directory(session, start)),
      saver_(options_of(session, start, log, marker_,
                        [this](int64_t of) { return mirror_ && mirror_->holds(of); }),
             session.world()),
      reached_(step) {
  if (start.read_checkpoint()) saver_.trust(*start.read_checkpoint());
  if (!log_.log().silent()) {
    carried_ = files_of_run(session, log_.log());
    find_newest();
    set_last_words();
  }
  open_mirror(session, step);
}

void RunCheckpoints::open_mirror(const session::Session& session, int64_t step) {
  const CheckpointSection& saves = config_.checkpoint;
  if (!saves.mirror) return;
  start_.use_attempt();  // the mirror tells the number to others
  checkpoint::MirrorOptions options;
  options.checkpoints = checkpoint_dir(config_);
  options.attempt = start_.attempt();
  options.rank = world_->rank();
  options.ranks = world_->size();
  options.keep = saves.mirror_keep.value_or(saves.keep);
  options.milestone_every = saves.milestone_every;
  options.run_dir = config_.run.dir;
  options.run_files = {run::kConfigFile, run::kEventsFile, run::kMetricsFile,
                       run::kResultsFile, run::kLogFile};
  options.lock = start_.lock();
  options.claim.marker = marker_;
  // A run that has saved since it began anew knows its mirror by the names in the marker
  // of its directory. Otherwise the mirror may belong to an earlier identity of the run.
  if (!start_.past().newest) options.claim.given_up = start_.past().given_up;
  const std::string newest = comm::on_rank_zero(
      session.world(), [&] { return std::to_string(newest_.value_or(-1)); });
  mirror_ = std::make_unique<checkpoint::MirrorThread>(
      std::move(options), checkpoint::open_mirror(objects::parse_address(*saves.mirror),
                                                  objects::ObjectStore::Priority::Low));
  log_.log().info("checkpoints are copied to {}", *saves.mirror);
  const bool may_go_back = saves.resume.kind == ResumeFrom::Kind::Step ||
                           saves.resume.kind == ResumeFrom::Kind::Path;
  if (may_go_back || start_.has_begun_anew()) mirror_->went_back(step);
  // An earlier start may have ended before its last checkpoint was copied.
  if (const int64_t found = std::stoll(newest); found >= 0) {
    mirror_->committed(found, /*if_absent=*/true);
  }
}

checkpoint::Snapshot RunCheckpoints::completed(checkpoint::Snapshot snapshot,
                                               const History& history, bool wait) const {
  snapshot.step = history.step;
  snapshot.state = history.to_json();
  snapshot.files = carried_;
  if (wait && !snapshot.owner) snapshot.owner = std::make_shared<char>();
  return snapshot;
}

checkpoint::SaveReport RunCheckpoints::save_apart(const session::Session& session,
                                                  const fs::path& dir,
                                                  const History& history,
                                                  checkpoint::Snapshot snapshot) const {
  checkpoint::SaverOptions options = saver_options(session, dir, start_.attempt());
  options.lock = start_.lock();
  options.read_back = config_.checkpoint.read_back;
  return checkpoint::save_checkpoint(
      std::move(options), completed(std::move(snapshot), history, true), *world_);
}

void RunCheckpoints::save(const History& history,
                          const std::function<checkpoint::Snapshot()>& capture,
                          bool ends) {
  log_.log().info(describe_sources(history));
  const bool wait = ends || !config_.checkpoint.async_;
  std::optional<checkpoint::SaveReport> before;
  try {
    saver_.start([&] { return completed(capture(), history, wait); }, before);
  } catch (const TemporaryError& error) {
    if (before) tell(*before);
    checkpoint::SaveReport report;
    report.step = history.step;
    report.error = error.what();
    report.mine = true;  // rank 0 makes the directory for all
    tell(report);
    return;
  }
  if (before) tell(*before);
  if (!wait) return;
  if (auto report = saver_.wait()) {
    report->stall = report->seconds;
    tell(*report);
  }
  tell_deletions();
}

bool RunCheckpoints::settle() {
  if (const auto report = saver_.poll()) tell(*report);
  tell_deletions();
  tell_mirror();
  return failed_ > 0 && !saver_.under_way();
}

void RunCheckpoints::finish() {
  if (saver_.under_way() && !log_.log().silent()) {
    log_.log().status("waiting for the checkpoint to be durable");
  }
  drain();
  if (failed_ > 0) raise(last_failure_);
  wait_for_mirror();
}

void RunCheckpoints::drain() {
  if (const auto report = saver_.wait()) tell(*report);
  tell_deletions();
}

void RunCheckpoints::raise(const checkpoint::SaveReport& report) {
  if (!report.mine) world_->ledger().failed_elsewhere();
  report.raise();
}

void RunCheckpoints::tell_failure(const checkpoint::SaveReport& report) {
  last_failure_ = report;
  const bool again = report.kind == ErrorKind::Temporary && ++failed_ < kTries;
  log_.event(
      run::kBadSaveEvent,
      {{"step", report.step}, {"attempt", start_.attempt()}, {"message", report.error}});
  if (!again) raise(report);
  log_.log().warning(
      "CHECKPOINT FAILED: {}; the run goes on and tries again "
      "after the next step ({} of {} tries)",
      report.error, failed_, kTries);
}

void RunCheckpoints::tell(const checkpoint::SaveReport& report) {
  if (!report.error.empty()) return tell_failure(report);
  failed_ = 0;
  longest_ = std::max(longest_, report.seconds);
  if (mirror_) mirror_->committed(report.step);
  if (log_.log().silent()) return;
  newest_ = report.step;
  set_last_words();
  if (!report.not_kept.empty()) {
    log_.log().warning(
        "the checkpoint of step {} is whole, but {} could not be updated: {}",
        report.step, run::kRunPastFile, report.not_kept);
  }
  log_.log().info("checkpoint step {} saved {} in {:.1f} s stall {:.1f} s", report.step,
                  human_bytes(report.bytes), report.seconds, report.stall);
  if (report.waited > kLongWait) {
    log_.log().warning(
        "the checkpoint of step {} had to wait {:.1f} s for the one before "
        "it: {} saves more often than this storage can keep up with",
        report.step, report.waited,
        config_.checkpoint.every > 0
            ? fmt::format("checkpoint.every = {}", config_.checkpoint.every)
            : fmt::format("checkpoint.every_minutes = {}",
                          config_.checkpoint.every_minutes));
  }
  log_.event(run::CheckpointEvent{.attempt = start_.attempt(),
                                  .step = report.step,
                                  .bytes = static_cast<int64_t>(report.bytes),
                                  .seconds = report.seconds,
                                  .longest = longest_,
                                  .stall = report.stall,
                                  .waited = report.waited});
}

void RunCheckpoints::tell_deletions() {
  for (const std::string& note : saver_.take_notes()) log_.log().to_file_only(note);
}

void RunCheckpoints::tell_mirror() {
  if (!mirror_) return;
  const std::string& place = *config_.checkpoint.mirror;
  using Kind = checkpoint::MirrorReport::Kind;
  for (const checkpoint::MirrorReport& report : mirror_->take_reports()) {
    Json fields = {{"attempt", start_.attempt()}, {"step", report.step}};
    switch (report.kind) {
      case Kind::Done:
        log_.log().info(
            "checkpoint step {} mirrored {} in {:.1f} s, requests of rank 0 tried again: "
            "{}",
            report.step, human_bytes(report.bytes), report.seconds, report.retries);
        fields["bytes"] = report.bytes;
        fields["seconds"] = report.seconds;
        fields["retries"] = report.retries;
        log_.event(run::kMirroredEvent, std::move(fields));
        break;
      case Kind::Behind:
        log_.log().warning(
            "THE MIRROR FALLS BEHIND: step {} is left out, since a newer checkpoint came "
            "before the copy of an earlier one to {} has ended",
            report.step, place);
        log_.event(run::kMirrorBehindEvent, std::move(fields));
        break;
      case Kind::Failed:
        log_.log().warning(
            "MIRROR FAILED at step {} of {}: {}; {}", report.step, place, report.message,
            report.again > 0.0
                ? fmt::format("it is tried again in {:.0f} s", report.again)
                : "the next save tries again");
        fields["message"] = report.message;
        fields["again_s"] = report.again;
        log_.event(run::kMirrorFailedEvent, std::move(fields));
        break;
      case Kind::Note:
        log_.log().to_file_only(report.message);
        break;
    }
  }
}

void RunCheckpoints::wait_for_mirror() {
  if (!mirror_) return;
  mirror_->try_no_more();
  comm::Polling polling(world_->ledger(), run::kSaveWaitPhase,
                        {"mirror", "wait", reached_, 0, {}});
  const system::Stopwatch watch;
  auto pause = std::chrono::milliseconds(5);
  for (uint64_t looks = 1;; ++looks) {
    const bool first = world_->rank() == 0;
    const double waited = first ? watch.seconds() : 0.0;
    // Rank 0 has the mirror's thread and the clock; a signal may come to any rank.
    std::array<int64_t, 4> told = {first && mirror_->busy() ? 1 : 0,
                                   waited >= kMirrorEndSeconds ? 1 : 0,
                                   waited >= kMirrorSignalSeconds ? 1 : 0,
                                   longhaul::system::raised_signal().number != 0 ? 1 : 0};
    world_->all_reduce_wait(told, comm::ReduceOp::Sum);
    tell_mirror();
    if (told[0] == 0) {
      // A copy that has failed is not tried again, since no save follows.
      if (first && mirror_->newest() != newest_) warn_of_mirror(waited);
      return;
    }
    if (told[1] > 0 || (told[2] > 0 && told[3] > 0)) return warn_of_mirror(waited);
    if (first) {
      log_.log().status(fmt::format("waiting for the mirror: {:.0f} s, {:.0f} at most",
                                    waited, kMirrorEndSeconds));
    }
    // The wait is bounded, so nobody needs to treat it as a hang.
    polling.look(looks, !first);
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(500));
  }
}

void RunCheckpoints::warn_of_mirror(double seconds) {
  if (log_.log().silent()) return;
  const auto has = mirror_->newest();
  log_.log().warning(
      "THE MIRROR IS NOT UP TO DATE after {:.0f} s: {} has {}; the checkpoints in {} are "
      "whole, and the next start copies the newest",
      seconds, *config_.checkpoint.mirror,
      has ? fmt::format("step {}", *has) : "no checkpoint of this start",
      checkpoint_dir(config_).string());
}

void RunCheckpoints::end_mirror() {
  if (!mirror_) return;
  if (!mirror_->busy()) {
    mirror_->send_run_files();
    const system::Stopwatch watch;
    const auto goes_on = [&] {
      // The sender of a signal need not wait for an export.
      const bool signalled = longhaul::system::raised_signal().number != 0;
      return mirror_->busy() || (!signalled && mirror_->copies_exports());
    };
    while (goes_on() && watch.seconds() < kRunFilesSeconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (mirror_->copies_exports()) {
      log_.log().to_file_only(
          "the run ends before its exports are all in the mirror: the next start copies "
          "them");
    }
  }
  mirror_->stop();
  tell_mirror();
}

void RunCheckpoints::reached(int64_t step) {
  if (log_.log().silent()) return;
  reached_ = step;
  set_last_words();
}

void RunCheckpoints::find_newest() {
  if (log_.log().silent()) return;
  const auto newest = checkpoint::find_latest(checkpoint_dir(config_));
  newest_ = newest ? std::optional(newest->step) : std::nullopt;
  if (mirror_) mirror_->went_back(newest_.value_or(-1));
}

std::string RunCheckpoints::words_at(int64_t step) const {
  if (step == 0) return "nothing was trained, so there is nothing to save";
  if (newest_ == step) return "saved";
  return newest_ ? fmt::format("not saved: the newest checkpoint is step {}", *newest_)
                 : "not saved: there is no checkpoint";
}

/// Sets the last words of the process (system::set_last_words), which say what a sudden
/// end of the run would lose.
void RunCheckpoints::set_last_words() const {
  const int64_t newest = newest_.value_or(0);
  std::string words = newest_ ? fmt::format("newest checkpoint step {}", newest)
                              : "there is no checkpoint";
  if (reached_ == newest + 1) {
    words += fmt::format("; step {} will be trained again", reached_);
  } else if (reached_ > newest) {
    words += fmt::format("; steps {} to {} will be trained again", newest + 1, reached_);
  }
  longhaul::system::set_last_words(words);
}

}  // namespace longhaul::train
