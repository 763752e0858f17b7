#include "longhaul/train/save/checkpoint_home.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/home.h"
#include "longhaul/comm/agree.h"
#include "longhaul/run/files.h"
#include "longhaul/train/log/metrics.h"

namespace longhaul::train {
namespace {

/// What rank 0 finds out about the directory of checkpoints, for all ranks.
enum class Finding { Unmarked, Marked, Foreign, Missing };

/// Returns the directories of checkpoints that a path may stand for: the path may be a
/// checkpoint, a directory of checkpoints or a run.
std::vector<fs::path> places_of(const fs::path& path) {
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  return {clean, fs::absolute(clean).parent_path(),
          checkpoint::checkpoints_dir_of(clean)};
}

/// Returns whether the checkpoints that a person named belong to this run, wherever they
/// lie.
bool is_own(const fs::path& path, const std::string& run) {
  return std::ranges::any_of(places_of(path), [&](const fs::path& dir) {
    return run::read_checkpoints_owner(dir) == run;
  });
}

/// Returns the run to which the directory of checkpoints belongs, by its marker, else by
/// run.json.
std::string owner_of(const RunConfig& config) {
  if (const auto owner = run::read_checkpoints_owner(checkpoint_dir(config))) {
    return *owner;
  }
  return run::read_run_identity(config.run.dir).value_or("");
}

/// Throws where the checkpoints in `dir` belong to a run that still exists in another
/// run.dir: this run must not take over its identity.
void refuse_second_run(const fs::path& dir, const RunConfig& config) {
  const auto marker = run::read_checkpoints_marker(dir);
  const std::string here = run::RunPast::place_of(config.run.dir);
  if (!marker || marker->run_dir.empty() || marker->run_dir == here) return;
  std::optional<std::string> there;
  Failure::of([&] { there = run::read_run_identity(marker->run_dir); });
  if (there != marker->run) return;
  fail_input("checkpoint",
             "{} has the checkpoints of run {}, whose run.dir is {}, and this run's "
             "is {}. Set run.dir to {} to go on as that run, or give this run a "
             "checkpoint.dir of its own; checkpoint.resume = \"{}\" then begins from "
             "that run's newest checkpoint",
             dir.string(), marker->run, marker->run_dir, here, marker->run_dir,
             marker->run_dir);
}

/// Finds out whose the checkpoints in a directory without a marker are. Throws where none
/// of them is this run's, and no setting says that one is meant.
void settle_unmarked(const fs::path& dir, const RunConfig& config, RunStart& start,
                     RunLog& run) {
  const run::RunPast& record = start.past();
  std::map<std::string, fs::path> newest;  // by run
  std::string of_events;
  for (const auto& entry : checkpoint::list_checkpoints(dir)) {
    if (entry.run.empty()) continue;
    newest[entry.run] = entry.path;
    // A record that was made from events alone does not know the identity of its run.
    if (record.checkpoints.empty() && record.newest == entry.step) of_events = entry.run;
  }
  if (newest.empty()) return;
  if (!newest.contains(record.run) && !of_events.empty()) {
    run.log().info(
        "{} and {} are lost; {} tells that this run has saved {}: the run "
        "takes the identity there, {}",
        run::kRunPastFile, run::kCheckpointsOwnerFile, run::kEventsFile,
        newest[of_events].string(), of_events);
    start.take_over(of_events);
  }
  if (newest.contains(record.run)) {
    // The marker tells later starts which of these checkpoints belong to other runs.
    run::CheckpointsMarker marker;
    marker.run = record.run;
    if (newest.size() > 1) run::mark_checkpoints(dir, marker);
    return;
  }
  if (record.newest || config.checkpoint.resume.kind == ResumeFrom::Kind::Path) return;
  const auto& [other, path] = *newest.begin();
  fail_input(
      "checkpoint",
      "{} was saved by run {}, and this is run {}: neither {} there nor {} in {} "
      "says that its checkpoints are this run's. Bring one of these files back, or "
      "set checkpoint.resume = \"{}\" to begin from it, or \"never\" to begin anew",
      path.string(), other, record.run, run::kCheckpointsOwnerFile, run::kRunPastFile,
      config.run.dir.string(), path.string());
}

/// Begins the run anew on purpose: the checkpoints that are there get other names, and
/// the run gets a new identity. The identity changes last, so that the next start does
/// all of it again if this start is killed before the end.
void begin_by_intent(const fs::path& dir, RunStart& start, RunLog& run) {
  const auto owner = run::read_checkpoints_owner(dir);
  if (owner && *owner != start.run() && checkpoint::has_committed(dir)) {
    fail_input(
        "checkpoint",
        "checkpoint.resume = \"never\", and {} holds the checkpoints of another run "
        "({}); give this run a checkpoint.dir of its own, or remove that directory",
        dir.string(), *owner);
  }
  for (const auto& entry : checkpoint::list_checkpoints(dir)) {
    if (!fs::exists(entry.path / run::kManifestFile)) continue;
    const fs::path aside = checkpoint::set_aside(entry.path, "superseded");
    run.log().warning(
        "checkpoint.resume = \"never\": the run begins anew; {} is kept as "
        "{}; delete it when you need the space",
        entry.path.string(), aside.string());
  }
  start.begin_anew();
}

Finding judge(const RunConfig& config, RunStart& start, RunLog& run) {
  const fs::path dir = checkpoint_dir(config);
  if (config.checkpoint.resume.kind == ResumeFrom::Kind::Never) {
    begin_by_intent(dir, start, run);
    return Finding::Unmarked;
  }
  const auto owner = run::read_checkpoints_owner(dir);
  const run::RunPast& record = start.past();
  // A start that began the run anew may have ended before it could mark the directory.
  // Then the marker has an identity that the run has given up.
  const bool given_up = owner && record.has_given_up(*owner);
  if (owner && *owner != record.run && (!given_up || checkpoint::has_committed(dir))) {
    // A record that was made from events alone does not know the identity of its run.
    const bool by_events = record.checkpoints.empty();
    if (record.newest && !by_events) return Finding::Foreign;
    refuse_second_run(dir, config);
    // This run's own directory was lost or is new: the run takes the identity of the
    // checkpoints.
    run.log().info(
        "{} has the checkpoints of run {}: this run takes that identity and "
        "goes on from them",
        dir.string(), *owner);
    start.take_over(*owner);
  }
  if (!owner) settle_unmarked(dir, config, start, run);
  const ResumeFrom& resume = config.checkpoint.resume;
  const bool moved =
      resume.kind == ResumeFrom::Kind::Path && is_own(resume.path, record.run);
  if (record.newest && !moved && !checkpoint::has_committed(dir, record.run)) {
    return Finding::Missing;
  }
  return owner == record.run ? Finding::Marked : Finding::Unmarked;
}

/// Returns the names of what lies in `dir`, which has no checkpoint of this run:
/// checkpoints that were set aside and checkpoints of other runs.
std::string names_there(const fs::path& dir) {
  std::string names;
  for (const fs::path& path : checkpoint::list_set_aside(dir)) {
    names += (names.empty() ? "; set aside there: " : ", ") + path.filename().string();
  }
  const char* between = "; of other runs there: ";
  for (const auto& entry : checkpoint::list_checkpoints(dir)) {
    if (entry.run.empty()) continue;
    names += fmt::format("{}{} ({})", std::exchange(between, ", "),
                         entry.path.filename().string(), entry.run);
  }
  return names;
}

[[noreturn]] void refuse_foreign(const fs::path& dir, const run::RunPast& record) {
  fail_input("checkpoint",
             "{} holds the checkpoints of another run ({}), and this run ({}) had "
             "saved a checkpoint of step {} in {}. Set checkpoint.dir to the "
             "directory of its checkpoints, give this run a checkpoint.dir of its "
             "own, or set checkpoint.resume = \"never\" to begin anew",
             dir.string(), run::read_checkpoints_owner(dir).value_or(""), record.run,
             *record.newest, record.checkpoints);
}

/// Gives checkpoints that are newer than `step` other names. The run's record forgets
/// these checkpoints first, so that none of them counts as lost. Called on rank 0 only.
void move_newer_aside(const fs::path& dir, RunStart& start, RunLog& run, int64_t step) {
  const auto entries = checkpoint::list_checkpoints(dir);
  std::optional<int64_t> newest;
  for (const auto& entry : entries) {
    if (entry.valid && entry.step <= step) newest = entry.step;
  }
  start.keeps(newest, dir);
  for (const auto& entry : entries) {
    if (entry.step <= step || !entry.valid) continue;
    const fs::path aside = checkpoint::set_aside(entry.path, "superseded");
    run.log().warning(
        "{} is newer than step {}, from which this run goes on: it is kept "
        "as {}; delete it when you need the space",
        entry.path.string(), step, aside.string());
  }
}

/// Returns whether checkpoint.resume names one of the run's own checkpoints, by its step
/// or its path, to which the run goes back. Asks the file system of rank 0. Called on
/// rank 0 only.
bool goes_back(const RunConfig& config) {
  const ResumeFrom& resume = config.checkpoint.resume;
  if (resume.kind == ResumeFrom::Kind::Step) return true;
  return resume.kind == ResumeFrom::Kind::Path && !begins_elsewhere(config) &&
         fs::exists(resume.path / run::kManifestFile);
}

}  // namespace

Home look_at_home(const session::Session& session, RunStart& start, RunLog& run) {
  const fs::path dir = checkpoint_dir(session.config());
  const Json told = Json::parse(comm::on_rank_zero(session.world(), [&] {
    const Finding finding = judge(session.config(), start, run);
    return json_text(Json{{"finding", static_cast<int>(finding)}, {"run", start.run()}});
  }));
  const auto identity = told.at("run").get<std::string>();
  switch (static_cast<Finding>(told.at("finding").get<int>())) {
    case Finding::Unmarked:  // the marker is made before the first save
      return Home::Sound;
    case Finding::Marked:
      checkpoint::prove_checkpoints_dir(dir, identity, 0.0, session.world());
      return Home::Sound;
    case Finding::Foreign:
      checkpoint::confirm_missing(dir, identity, session.world());
      comm::on_rank_zero(session.world(), [&] { refuse_foreign(dir, start.past()); });
      break;
    case Finding::Missing:
      checkpoint::confirm_missing(dir, identity, session.world());
      break;
  }
  return Home::Gone;
}

void refuse_gone(const session::Session& session, const RunStart& start) {
  const fs::path dir = checkpoint_dir(session.config());
  comm::on_rank_zero(session.world(), [&] {
    const run::RunPast& record = start.past();
    const fs::path place = fs::absolute(dir).lexically_normal();
    const std::string moved =
        record.checkpoints.empty() || record.checkpoints == run::RunPast::place_of(dir)
            ? ""
            : fmt::format(", or set checkpoint.dir to {}, where the checkpoints were",
                          record.checkpoints);
    fail_input("checkpoint",
               "this run had saved a checkpoint of step {}, but no rank finds a "
               "checkpoint in {}{}; bring the directory back{}, or set "
               "checkpoint.resume = \"never\" to begin anew",
               *record.newest, place.string(), names_there(dir), moved);
  });
  throw Error(ErrorKind::Internal, "checkpoint", "rank 0 did not refuse");
}

bool begins_elsewhere(const RunConfig& config) {
  const ResumeFrom& resume = config.checkpoint.resume;
  if (resume.kind != ResumeFrom::Kind::Path) return false;
  const fs::path dir = checkpoint_dir(config);
  if (run::is_strangers(resume.path, owner_of(config))) return true;
  return std::ranges::none_of(places_of(resume.path), [&](const fs::path& place) {
    std::error_code absent;
    return fs::equivalent(place, dir, absent);
  });
}

void set_newer_aside(const session::Session& session, RunStart& start, RunLog& run,
                     int64_t step, SetAside when) {
  comm::on_rank_zero(session.world(), [&] {
    if (when == SetAside::Always || goes_back(session.config())) {
      move_newer_aside(checkpoint_dir(session.config()), start, run, step);
    }
  });
}

void refuse_unknown_past(const session::Session& session, const RunStart& start) {
  comm::on_rank_zero(session.world(), [&] {
    const fs::path& run_dir = session.config().run.dir;
    const int64_t done = last_step_of_metrics(run_dir);
    if (done == 0 || !start.past().knows_no_start(run_dir)) return;
    fail_input("checkpoint",
               "{} has steps up to {}, and neither {} nor {}, which say whether a "
               "checkpoint was committed; {} has none. Bring the files or the "
               "checkpoints back, or set checkpoint.resume = \"never\" to begin anew",
               (run_dir / run::kMetricsFile).string(), done, run::kRunPastFile,
               run::kEventsFile, checkpoint_dir(session.config()).string());
  });
}

void tell_unknown_past(const session::Session& session, const RunStart& start,
                       RunLog& run, int64_t step) {
  comm::on_rank_zero(session.world(), [&] {
    const fs::path& run_dir = session.config().run.dir;
    const int64_t done = last_step_of_metrics(run_dir);
    if (done <= step || !start.past().knows_no_start(run_dir)) return;
    run.log().warning(
        "{} has steps up to {}, and {} and {}, which say which checkpoint was "
        "the newest, are lost: the newest in {} is of step {}, and the steps "
        "since are trained again",
        (run_dir / run::kMetricsFile).string(), done, run::kRunPastFile, run::kEventsFile,
        checkpoint_dir(session.config()).string(), step);
  });
}

void note_loaded(const session::Session& session, RunStart& start, RunLog& run) {
  if (start.lock() == nullptr) return;
  auto failure = Failure::of([&] {
    const fs::path dir = checkpoint_dir(session.config());
    std::optional<int64_t> newest;
    for (const auto& entry : checkpoint::list_checkpoints(dir)) {
      // A directory without a marker may hold another run's checkpoint.
      const bool own = entry.run.empty() || entry.run == start.run();
      if (entry.valid && own) newest = entry.step;
    }
    if (newest) start.keeps(newest, dir);
  });
  if (const auto other = Failure::of([&] { start.loaded(); })) failure = other;
  if (!failure) return;
  run.log().warning("the state was loaded, but {} could not be updated: {}",
                    run::kRunPastFile, failure->message);
}

}  // namespace longhaul::train
