#include "longhaul/checkpoint/examine/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/config/due.h"
#include "longhaul/config/load.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_lock.h"
#include "longhaul/run/run_past.h"

namespace longhaul::checkpoint {
namespace {

using Tell = std::function<void(const std::string&)>;

/// Returns the directory of the checkpoints of a run or directory that a person named.
fs::path checkpoints_of_named(const fs::path& path) {
  const fs::path dir = checkpoints_dir_of(path);
  return list_checkpoints(dir).empty() && !list_checkpoints(path).empty() ? path : dir;
}

/// Returns whether a process writes this run now, so that a save may be under way.
bool is_written_now(const fs::path& run_dir) {
  system::OwnerLockOptions options;
  options.probe = false;
  const auto lock = system::OwnerLock::look(run_dir / run::kRunLockFile, options);
  return lock && lock->alive;
}

/// Returns whether the checkpoint is gone: a run that goes on deletes old checkpoints,
/// also while one is read.
bool was_deleted(const fs::path& step_dir) {
  return !is_seen(step_dir / run::kManifestFile);
}

void verify_one(const CheckpointEntry& entry, RunVerdict& verdict, const Tell& tell) {
  const fs::path& step_dir = entry.path;
  const std::string name = step_dir.filename().string();
  try {
    const uint64_t bytes = CheckpointReader::open(step_dir).verify();
    // No start takes an invalid checkpoint, even if all its hashes are right.
    if (!entry.valid) throw InputError("checkpoint", entry.problem);
    ++verdict.whole;
    verdict.bytes += bytes;
    tell(fmt::format("{}: {} read, every hash is right", name, human_bytes(bytes)));
  } catch (const Error& error) {
    if (was_deleted(step_dir)) {
      tell(name + ": was deleted while it was read");
      return;
    }
    const bool passing = error.kind() == ErrorKind::Temporary;
    const char* const what = passing          ? "CANNOT BE READ"
                             : entry.stranger ? "OF ANOTHER RUN"
                                              : "BROKEN";
    tell(fmt::format("{}: {}: {}", name, what, error.message()));
    (passing ? verdict.unasked : verdict.broken).push_back(error.message());
  }
}

/// Returns whether checkpoint.keep may have begun to delete a checkpoint of this step,
/// since a deletion removes the manifest first. Returns true if the run's settings cannot
/// be read.
bool may_be_half_deleted(const fs::path& run_dir,
                         const std::vector<CheckpointEntry>& entries, int64_t step) {
  CheckpointSection saves;
  try {
    saves = load_run_config(run_dir / run::kConfigFile).config.checkpoint;
  } catch (const Error&) {
    return true;
  }
  if (saves.keep <= 0 || config::is_due(saves.milestone_every, step)) return false;
  return std::ranges::count_if(entries, [&](const CheckpointEntry& entry) {
           return entry.valid && entry.step > step;
         }) >= saves.keep;
}

}  // namespace

bool may_be_run(const fs::path& path) {
  const fs::path dir = checkpoints_of_named(path);
  return fs::exists(path / run::kConfigFile) || fs::exists(path / run::kRunPastFile) ||
         !list_checkpoints(dir).empty() || !list_set_aside(dir).empty();
}

RunVerdict verify_run(const fs::path& path, const Tell& tell) {
  RunVerdict verdict;
  const fs::path dir = checkpoints_of_named(path);
  const std::vector<CheckpointEntry> entries = list_checkpoints(dir);
  const std::set<int64_t> committed = run::committed_by_events(path);
  auto missing = missing_newest(path, dir);
  const auto tell_missing = [&](const fs::path& step_dir, const char* what) {
    const std::string problem =
        fmt::format("the run committed it, and {} is not there any more", what);
    tell(fmt::format("{}: MISSING: {}", step_dir.filename().string(), problem));
    verdict.broken.push_back(fmt::format("{}: {}", step_dir.string(), problem));
  };
  for (const CheckpointEntry& entry : entries) {
    if (fs::exists(entry.path / run::kManifestFile)) {
      verify_one(entry, verdict, tell);
      continue;
    }
    if (missing == entry.path || (committed.contains(entry.step) &&
                                  !may_be_half_deleted(path, entries, entry.step))) {
      if (missing == entry.path) missing.reset();
      tell_missing(entry.path, run::kManifestFile);
      continue;
    }
    tell(fmt::format("{}: no checkpoint: {}", entry.path.filename().string(),
                     is_written_now(path)
                         ? "a save is under way, or it never ended; the run is active"
                         : "its save never ended"));
  }
  for (const fs::path& aside : list_set_aside(dir)) {
    tell(aside.filename().string() +
         ": set aside, so no start uses it; not read (give its path to verify it)");
  }
  if (missing) tell_missing(*missing, "it");
  return verdict;
}

}  // namespace longhaul::checkpoint
