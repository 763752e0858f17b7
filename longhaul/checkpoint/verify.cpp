#include "longhaul/checkpoint/verify.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/read/reader.h"
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
  std::error_code ignored;
  return !fs::exists(step_dir / run::kManifestFile, ignored);
}

void verify_one(const fs::path& step_dir, RunVerdict& verdict, const Tell& tell) {
  const std::string name = step_dir.filename().string();
  try {
    const uint64_t bytes = CheckpointReader::open(step_dir).verify();
    ++verdict.whole;
    verdict.bytes += bytes;
    tell(fmt::format("{}: {} read, every hash is right", name,
                     human_bytes(static_cast<double>(bytes))));
  } catch (const Error& error) {
    if (was_deleted(step_dir)) {
      tell(name + ": was deleted while it was read");
      return;
    }
    const bool passing = error.kind() == ErrorKind::Temporary;
    tell(fmt::format("{}: {}: {}", name, passing ? "CANNOT BE READ" : "BROKEN",
                     error.message()));
    (passing ? verdict.unasked : verdict.broken).push_back(error.message());
  }
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
  for (const CheckpointEntry& entry : list_checkpoints(dir)) {
    if (fs::exists(entry.path / run::kManifestFile)) {
      verify_one(entry.path, verdict, tell);
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
  if (const auto missing = missing_newest(path, dir)) {
    const std::string problem = fmt::format(
        "{}: the run committed it, and it is not there any more", missing->string());
    tell(fmt::format("{}: MISSING: the run committed it, and it is not there any more",
                     missing->filename().string()));
    verdict.broken.push_back(problem);
  }
  return verdict;
}

}  // namespace longhaul::checkpoint
