#include "longhaul/train/save/checkpoint_choice.h"

#include <functional>
#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/foreign_forms.h"
#include "longhaul/comm/agree.h"
#include "longhaul/run/files.h"
#include "longhaul/train/save/checkpoint_home.h"

namespace longhaul::train {
namespace {

/// Starts from one checkpoint that may fail in a row before the checkpoint is set aside.
constexpr int kFailedStarts = 2;

/// Returns the paths that rank 0 finds, on all ranks. Collective.
std::vector<fs::path> agree_on_paths(const session::Session& session,
                                     const std::function<std::vector<fs::path>()>& find) {
  const std::string text = comm::on_rank_zero(session.world(), [&] {
    // The text is no JSON, because a path may hold any byte but NUL.
    std::string paths;
    for (const fs::path& path : find()) paths += path.string() + '\0';
    return paths;
  });
  std::vector<fs::path> paths;
  for (size_t begin = 0; begin < text.size(); begin = text.find('\0', begin) + 1) {
    paths.emplace_back(text.substr(begin, text.find('\0', begin) - begin));
  }
  return paths;
}

/// Tells of checkpoints, newer than `taken`, that were whole once and have lost a file
/// since. Called on rank 0 only.
void tell_passed_over(const fs::path& taken, RunLog& run) {
  for (const auto& entry : checkpoint::list_checkpoints(taken.parent_path())) {
    const bool committed = fs::exists(entry.path / run::kManifestFile);
    if (entry.valid || entry.stranger || !committed) continue;
    if (entry.step <= run::step_of(taken)) continue;
    run.event(run::FallBackEvent{entry.path.filename().string(),
                                 taken.filename().string(), entry.problem});
  }
}

/// Tells of the newest checkpoint in the run's record where that checkpoint is missing.
/// Called on rank 0 only.
void tell_missing(const run::RunPast& record, const fs::path& taken, RunLog& run) {
  const fs::path missing =
      taken.parent_path() / run::step_directory_name(record.newest.value_or(0));
  if (!record.newest || *record.newest <= run::step_of(taken) ||
      fs::exists(missing / run::kManifestFile)) {
    return;
  }
  const std::string why = "it was committed and is not there any more";
  run.log().warning(
      "CHECKPOINT MISSING: {}: {}; going back to {}: the steps since are trained again",
      missing.string(), why, taken.string());
  run.event(
      run::FallBackEvent{missing.filename().string(), taken.filename().string(), why});
}

/// Returns the checkpoints that checkpoint.resume asks for. Where the setting only says
/// how this run begins, the run's own checkpoints come first. Called on rank 0 only.
std::vector<fs::path> asked_candidates(const RunConfig& config, const RunStart& start,
                                       RunLog& run) {
  const fs::path dir = checkpoint_dir(config);
  ResumeFrom asked = config.checkpoint.resume;
  const bool goes_on =
      begins_elsewhere(config) && checkpoint::has_committed(dir, start.run());
  if (goes_on) {
    run.log().warning(
        "checkpoint.resume {} is not used: this run has checkpoints of its own in {}",
        asked.path.string(), dir.string());
    asked = {};
  }
  if (!goes_on) checkpoint::refuse_foreign(config);
  std::vector<std::string> skipped;
  auto found = checkpoint::resume_candidates(asked, dir, &skipped);
  for (const std::string& line : skipped) run.log().warning(line);
  if (found.empty()) return found;
  tell_passed_over(found[0], run);
  if (asked.kind == ResumeFrom::Kind::Latest) tell_missing(start.past(), found[0], run);
  return found;
}

/// Returns the checkpoints of at most this step, the best first. Where all of these were
/// deleted, returns the oldest that is left. With none the run begins anew. Throws
/// TemporaryError where the run had checkpoints and all of them are gone: the next start
/// decides what to do. Called on rank 0 only.
std::vector<fs::path> old_enough_candidates(const session::Session& session,
                                            const RunStart& start, RunLog& run,
                                            int64_t step) {
  const RunConfig& config = session.config();
  std::vector<fs::path> old_enough;
  std::optional<checkpoint::CheckpointEntry> oldest;
  for (const auto& entry : checkpoint::list_checkpoints(checkpoint_dir(config))) {
    if (!entry.valid) continue;
    if (!oldest) oldest = entry;
    if (entry.step <= step) old_enough.insert(old_enough.begin(), entry.path);
  }
  if (!old_enough.empty()) return old_enough;
  // The older checkpoints were deleted long ago: the oldest that is left loses less than
  // a new beginning.
  if (oldest && step >= config.checkpoint.every) {
    run.log().warning(
        "no checkpoint of step {} or before is left: going back to the oldest, step {}",
        step, oldest->step);
    return {oldest->path};
  }
  const auto lost = start.past().newest_in(checkpoint_dir(config));
  if (lost && !oldest) {
    fail_temporary("checkpoint",
                   "the run has to go back, but none of its checkpoints "
                   "is left in {}; the newest was of step {}; bring the "
                   "directory back, and start the same command again",
                   checkpoint_dir(config).string(), *lost);
  }
  if (config.checkpoint.resume.kind != ResumeFrom::Kind::Path) return {};
  return checkpoint::resume_candidates(config.checkpoint.resume, checkpoint_dir(config));
}

}  // namespace

std::vector<fs::path> resume_candidates(const session::Session& session,
                                        const RunStart& start, RunLog& run) {
  return agree_on_paths(session, [&] {
    auto found = asked_candidates(session.config(), start, run);
    if (found.size() > 1 && start.failed_starts(found[0]) >= kFailedStarts) {
      const fs::path aside = checkpoint::set_aside(found[0], "failed_starts");
      run.log().warning(
          "{} starts in a row from {} did not complete one step: the checkpoint is set "
          "aside as {}, and the run goes on from {}",
          kFailedStarts, found[0].string(), aside.string(), found[1].string());
      found.erase(found.begin());
    }
    return found;
  });
}

std::vector<fs::path> rollback_candidates(const session::Session& session,
                                          const RunStart& start, RunLog& run,
                                          int64_t step) {
  return agree_on_paths(session,
                        [&] { return old_enough_candidates(session, start, run, step); });
}

}  // namespace longhaul::train
