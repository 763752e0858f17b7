#include "longhaul/cluster/supervision.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>

namespace longhaul::cluster {

std::optional<OwnerLock> take_supervision(const fs::path& run_dir, int replaces) {
  make_directories_durable(run_dir);
  const fs::path file = run_dir / kSupervisorLock;
  OwnerLockOptions lock;
  lock.area = "supervisor";
  lock.object = "the run's supervision";
  lock.occupation = "supervises this run";
  lock.advice = "give this run another run.dir";
  lock.lease_seconds = kSupervisorLease;
  lock.renew_seconds = kSupervisorLease / 4;
  if (replaces != 0) {
    const auto before = OwnerLock::look(file, lock);
    if (before && before->holder.attempt != replaces) return std::nullopt;
  }
  return OwnerLock::acquire(file, lock);
}

std::optional<int64_t> newest_checkpoint(const fs::path& dir) {
  std::optional<int64_t> newest;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    if (!fs::exists(entry.path() / "manifest.json", error)) continue;
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step_")) continue;
    int64_t step = 0;
    const char* const end = name.data() + name.size();
    // One that was set aside has more behind its number.
    if (std::from_chars(name.data() + 5, end, step).ptr != end) continue;
    newest = std::max(newest.value_or(step), step);
  }
  return newest;
}

}  // namespace longhaul::cluster
