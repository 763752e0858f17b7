#include "longhaul/train/save/checkpoint_home.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/home.h"
#include "longhaul/comm/agree.h"
#include "longhaul/run/files.h"

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

/// Begins the run anew on purpose: the checkpoints that are there get other names, and
/// the run gets a new identity. The identity changes last, so that a start which is
/// killed in here does all of it again.
void begin_by_intent(const fs::path& dir, RunStart& start, RunLog& run) {
  const auto owner = run::read_checkpoints_owner(dir);
  if (owner && *owner != start.run() && checkpoint::has_committed(dir)) {
    throw InputError(
        "checkpoint",
        fmt::format(
            "checkpoint.resume = \"never\", and {} holds the checkpoints of another run "
            "({}); give this run a checkpoint.dir of its own, or remove that directory",
            dir.string(), *owner));
  }
  for (const auto& entry : checkpoint::list_checkpoints(dir)) {
    if (!fs::exists(entry.path / run::kManifestFile)) continue;
    const fs::path aside = checkpoint::set_aside(entry.path, "superseded");
    run.log().warning(
        fmt::format("checkpoint.resume = \"never\": the run begins anew; {} is kept as "
                    "{}; delete it when you need the space",
                    entry.path.string(), aside.string()));
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
  // An earlier start has begun anew, and was ended before it could mark the directory.
  const bool given_up = owner && record.has_given_up(*owner);
  if (owner && *owner != record.run && (!given_up || checkpoint::has_committed(dir))) {
    // A record that was made from events alone was written under an unknown identity.
    const bool by_events = record.checkpoints.empty();
    if (record.newest && !by_events) return Finding::Foreign;
    // This run's own directory was lost or is new: the run takes the identity of the
    // checkpoints.
    run.log().info(
        fmt::format("{} has the checkpoints of run {}: this run takes that identity and "
                    "goes on from them",
                    dir.string(), *owner));
    start.take_over(*owner);
  }
  const ResumeFrom& resume = config.checkpoint.resume;
  const bool moved =
      resume.kind == ResumeFrom::Kind::Path && is_own(resume.path, record.run);
  if (record.newest && !moved && !checkpoint::has_committed(dir)) return Finding::Missing;
  return owner == record.run ? Finding::Marked : Finding::Unmarked;
}

std::string names_set_aside(const fs::path& dir) {
  std::string names;
  for (const fs::path& path : checkpoint::list_set_aside(dir)) {
    names += (names.empty() ? "; set aside there: " : ", ") + path.filename().string();
  }
  return names;
}

[[noreturn]] void refuse_foreign(const fs::path& dir, const run::RunPast& record) {
  throw InputError(
      "checkpoint",
      fmt::format("{} holds the checkpoints of another run ({}), and this run ({}) had "
                  "saved a checkpoint of step {} in {}. Set checkpoint.dir to the "
                  "directory of its checkpoints, give this run a checkpoint.dir of its "
                  "own, or set checkpoint.resume = \"never\" to begin anew",
                  dir.string(), run::read_checkpoints_owner(dir).value_or(""), record.run,
                  *record.newest, record.checkpoints));
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
        fmt::format("{} is newer than step {}, from which this run goes on: it is kept "
                    "as {}; delete it when you need the space",
                    entry.path.string(), step, aside.string()));
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

Home look_at_home(const Session& session, RunStart& start, RunLog& run) {
  const fs::path dir = checkpoint_dir(session.config);
  const Json told = Json::parse(comm::on_rank_zero(*session.world, [&] {
    const Finding finding = judge(session.config, start, run);
    return json_text(Json{{"finding", static_cast<int>(finding)}, {"run", start.run()}});
  }));
  const auto identity = told.at("run").get<std::string>();
  switch (static_cast<Finding>(told.at("finding").get<int>())) {
    case Finding::Unmarked:  // the marker is made before the first save
      return Home::Sound;
    case Finding::Marked:
      checkpoint::prove_checkpoints_dir(dir, identity, 0.0, *session.world);
      return Home::Sound;
    case Finding::Foreign:
      checkpoint::confirm_missing(dir, identity, *session.world);
      comm::on_rank_zero(*session.world, [&] { refuse_foreign(dir, start.past()); });
      break;
    case Finding::Missing:
      checkpoint::confirm_missing(dir, identity, *session.world);
      break;
  }
  return Home::Gone;
}

void refuse_gone(const Session& session, const RunStart& start) {
  const fs::path dir = checkpoint_dir(session.config);
  comm::on_rank_zero(*session.world, [&] {
    const run::RunPast& record = start.past();
    const fs::path place = fs::absolute(dir).lexically_normal();
    const std::string moved =
        record.checkpoints.empty() || record.checkpoints == run::RunPast::place_of(dir)
            ? ""
            : fmt::format(", or set checkpoint.dir to {}, where the checkpoints were",
                          record.checkpoints);
    throw InputError(
        "checkpoint",
        fmt::format("this run had saved a checkpoint of step {}, but no rank finds a "
                    "checkpoint in {}{}; bring the directory back{}, or set "
                    "checkpoint.resume = \"never\" to begin anew",
                    *record.newest, place.string(), names_set_aside(dir), moved));
  });
  throw Error(ErrorKind::Internal, "checkpoint", "rank 0 did not refuse");
}

bool begins_elsewhere(const RunConfig& config) {
  const ResumeFrom& resume = config.checkpoint.resume;
  if (resume.kind != ResumeFrom::Kind::Path) return false;
  const fs::path dir = checkpoint_dir(config);
  return std::ranges::none_of(places_of(resume.path), [&](const fs::path& place) {
    std::error_code absent;
    return fs::equivalent(place, dir, absent);
  });
}

void set_newer_aside(const Session& session, RunStart& start, RunLog& run, int64_t step,
                     SetAside when) {
  comm::on_rank_zero(*session.world, [&] {
    if (when == SetAside::Always || goes_back(session.config)) {
      move_newer_aside(checkpoint_dir(session.config), start, run, step);
    }
  });
}

void note_loaded(const Session& session, RunStart& start, RunLog& run) {
  if (start.lock() == nullptr) return;
  auto failure = Failure::of([&] {
    const fs::path dir = checkpoint_dir(session.config);
    if (const auto newest = checkpoint::find_latest(dir)) start.keeps(newest->step, dir);
  });
  if (const auto other = Failure::of([&] { start.loaded(); })) failure = other;
  if (!failure) return;
  run.log().warning(fmt::format("the state was loaded, but {} could not be updated: {}",
                                run::kRunPastFile, failure->message));
}

}  // namespace longhaul::train
