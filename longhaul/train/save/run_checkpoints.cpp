#include "longhaul/train/save/run_checkpoints.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "longhaul/base/build_info.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/home.h"
#include "longhaul/comm/agree.h"
#include "longhaul/run/files.h"
#include "longhaul/system/signals.h"
#include "longhaul/train/log/files_of_run.h"

namespace longhaul::train {
namespace {

/// Seconds of waiting for the save before that are worth a warning.
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

/// Makes the directory of checkpoints and marks it as this run's. Throws unless every
/// rank may write there, the file system of every machine does what a save needs, and all
/// ranks see the same directory. Collective.
fs::path ready_directory(const Session& session, const RunStart& start) {
  fs::path dir = checkpoint_dir(session.config);
  const Json told = Json::parse(comm::on_rank_zero(*session.world, [&] {
    make_directories_durable(dir);
    require_writable(dir);
    checkpoint::prove_durable(dir, host_name());
    const bool marked = run::read_checkpoints_owner(dir) == start.run();
    if (!marked) run::write_checkpoints_owner(dir, start.run());
    return json_text(Json{{"run", start.run()}, {"marked", marked}});
  }));
  const double patience = told.at("marked").get<bool>() ? 0.0 : checkpoint::kNameSeconds;
  checkpoint::prove_checkpoints_dir(dir, told.at("run").get<std::string>(), patience,
                                    *session.world);
  comm::on_all_ranks(*session.world, [&] {
    require_writable(dir);
    const bool first_here = session.node->rank() == 0 && session.world->rank() != 0;
    if (first_here) checkpoint::prove_durable(dir, host_name());
  });
  return dir;
}

checkpoint::SaverOptions options_of(const Session& session, RunStart& start,
                                    RunLog& log) {
  checkpoint::SaverOptions options =
      saver_options(session, ready_directory(session, start), start.attempt());
  options.lock = start.lock();
  if (start.lock() != nullptr) {
    options.run = start.run();
    // From now on the run's record says that this checkpoint must not get lost.
    options.keeps = [&start, dir = options.dir](std::optional<int64_t> newest) {
      start.keeps(newest, dir);
    };
  }
  options.keep = session.config.checkpoint.keep;
  options.milestone_every = session.config.checkpoint.milestone_every;
  options.read_back = session.config.checkpoint.read_back;
  if (!log.log().silent()) {
    options.tell = [&log](const std::string& line) { log.log().warning(line); };
  }
  return options;
}

}  // namespace

checkpoint::SaverOptions saver_options(const Session& session, const fs::path& dir,
                                       int attempt) {
  checkpoint::SaverOptions options;
  options.dir = dir;
  options.attempt = attempt;
  options.build = build_info().one_line();
  options.layout = layout_of(session);
  options.copy_threads = at::get_num_threads();
  return options;
}

RunCheckpoints::RunCheckpoints(const Session& session, RunStart& start, RunLog& log,
                               int64_t step)
    : log_(log),
      start_(start),
      config_(session.config),
      saver_(options_of(session, start, log), *session.world),
      reached_(step) {
  if (start.read_checkpoint()) saver_.trust(*start.read_checkpoint());
  if (log_.log().silent()) return;
  carried_ = files_of_run(session, log_.log());
  find_newest();
  set_last_words();
}

void RunCheckpoints::save(const History& history, checkpoint::Snapshot snapshot,
                          bool ends) {
  log_.log().info(describe_sources(history));
  const bool wait = ends || !config_.checkpoint.async_;
  snapshot.step = history.step;
  snapshot.state = history.to_json();
  snapshot.files = carried_;
  // Nothing is copied where training waits for the save.
  if (wait && !snapshot.owner) snapshot.owner = std::make_shared<char>();
  std::optional<checkpoint::SaveReport> before;
  try {
    saver_.start(std::move(snapshot), before);
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
  if (auto report = saver_.wait()) {
    report->stall = report->seconds;
    tell(*report);
  }
  tell_deletions();
}

bool RunCheckpoints::settle() {
  if (const auto report = saver_.poll()) tell(*report);
  tell_deletions();
  return failed_ > 0 && !saver_.under_way();
}

void RunCheckpoints::finish() {
  if (saver_.under_way() && !log_.log().silent()) {
    log_.log().status("waiting for the checkpoint to be durable");
  }
  drain();
  if (failed_ > 0) last_failure_.raise();
}

void RunCheckpoints::drain() {
  if (const auto report = saver_.wait()) tell(*report);
  tell_deletions();
}

void RunCheckpoints::tell_failure(const checkpoint::SaveReport& report) {
  last_failure_ = report;
  const bool again = report.kind == ErrorKind::Temporary && ++failed_ < kTries;
  log_.event(
      run::kBadSaveEvent,
      {{"step", report.step}, {"attempt", start_.attempt()}, {"message", report.error}});
  if (!again) report.raise();
  log_.log().warning(
      fmt::format("CHECKPOINT FAILED: {}; the run goes on and tries again "
                  "after the next step ({} of {} tries)",
                  report.error, failed_, kTries));
}

void RunCheckpoints::tell(const checkpoint::SaveReport& report) {
  if (!report.error.empty()) return tell_failure(report);
  failed_ = 0;
  longest_ = std::max(longest_, report.seconds);
  if (log_.log().silent()) return;
  newest_ = report.step;
  set_last_words();
  if (!report.not_kept.empty()) {
    log_.log().warning(
        fmt::format("the checkpoint of step {} is whole, but {} could not be updated: {}",
                    report.step, run::kRunPastFile, report.not_kept));
  }
  log_.log().info(fmt::format("checkpoint step {} saved {} in {:.1f} s stall {:.1f} s",
                              report.step, human_bytes(static_cast<double>(report.bytes)),
                              report.seconds, report.stall));
  if (report.waited > kLongWait) {
    log_.log().warning(
        fmt::format("the checkpoint of step {} had to wait {:.1f} s for the one before "
                    "it: {} saves more often than this storage can keep up with",
                    report.step, report.waited,
                    config_.checkpoint.every > 0
                        ? fmt::format("checkpoint.every = {}", config_.checkpoint.every)
                        : fmt::format("checkpoint.every_minutes = {}",
                                      config_.checkpoint.every_minutes)));
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

void RunCheckpoints::reached(int64_t step) {
  if (log_.log().silent()) return;
  reached_ = step;
  set_last_words();
}

void RunCheckpoints::find_newest() {
  if (log_.log().silent()) return;
  const auto newest = checkpoint::find_latest(checkpoint_dir(config_));
  newest_ = newest ? std::optional(newest->step) : std::nullopt;
}

std::string RunCheckpoints::words_at(int64_t step) const {
  if (step == 0) return "nothing was trained, so there is nothing to save";
  if (newest_ == step) return "saved";
  return newest_ ? fmt::format("not saved: the newest checkpoint is step {}", *newest_)
                 : "not saved: there is no checkpoint";
}

/// Sets the words that a run leaves when it ends at once, between saves.
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
