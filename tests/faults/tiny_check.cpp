#include "tests/faults/tiny_check.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/run/files.h"

namespace longhaul::faults {

std::optional<TinySave> newest_tiny(const fs::path& run_dir) {
  const auto latest = checkpoint::find_latest(run_dir / "checkpoints");
  if (!latest) return std::nullopt;
  return read_tiny(latest->path);
}

std::string problem_of(const fs::path& run_dir, const std::map<int64_t, int>& required) {
  try {
    const fs::path checkpoints = run_dir / "checkpoints";
    std::map<int64_t, int> found;
    for (const auto& entry : checkpoint::list_checkpoints(checkpoints)) {
      if (!fs::exists(entry.path / run::kManifestFile)) continue;
      const TinySave save = read_tiny(entry.path);
      if (save.step != entry.step || !entry.valid) return entry.problem;
      found[save.step] = save.attempt;
    }
    for (const auto& [step, attempt] : required) {
      const auto there = found.find(step);
      if (there == found.end()) return fmt::format("step {} is lost", step);
      if (attempt != 0 && there->second != attempt) {
        return fmt::format("step {} is of attempt {}, not {}", step, there->second,
                           attempt);
      }
    }
    const int64_t newest = found.empty() ? 0 : found.rbegin()->first;
    if (!required.empty() && newest < required.rbegin()->first) {
      return fmt::format("a start finds step {}, not {}", newest,
                         required.rbegin()->first);
    }
    if (fs::exists(run_dir / "run.lock")) read_json(run_dir / "run.lock");
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace longhaul::faults
