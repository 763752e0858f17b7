#include "longhaul/cluster/supervisor/supervisor_lease.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/failure.h"
#include "longhaul/base/refused.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_past.h"
#include "longhaul/system/terminal.h"

namespace longhaul::cluster {

namespace {

system::OwnerLockOptions supervisor_lease() {
  system::OwnerLockOptions lock;
  lock.area = "supervisor";
  lock.object = "the run's supervision";
  lock.occupation = "supervises this run";
  lock.advice = "give this run another run.dir";
  lock.lease_seconds = kSupervisorLease;
  lock.renew_seconds = kSupervisorLease / 4;
  lock.idle_seconds = kSupervisorIdle;
  // A batch script waits while a supervisor of its own job stands in for it.
  lock.waits_for_own_job = true;
  lock.on_watch = [](const std::string& line) {
    fmt::print(stderr, "longhaul: {}\n", system::printable(line));
  };
  return lock;
}

}  // namespace

system::OwnerLock take_supervision(const fs::path& run_dir) {
  make_setting_directory("run.dir", run_dir);
  return system::OwnerLock::acquire(run_dir / run::kSupervisorLockFile,
                                    supervisor_lease());
}

std::optional<system::OwnerLock> succeed_supervision(const fs::path& run_dir,
                                                     int number) {
  const auto before =
      system::OwnerLock::look(run_dir / run::kSupervisorLockFile, supervisor_lease());
  if (!before || before->holder.attempt != number) return std::nullopt;
  return take_supervision(run_dir);
}

std::optional<int64_t> newest_checkpoint(const fs::path& dir) {
  std::optional<int64_t> newest;
  std::string owner;
  // If the marker is wrong, the ranks will say so.
  Failure::of([&] { owner = run::read_checkpoints_owner(dir).value_or(""); });
  for (const fs::path& path : paths_in(dir)) {
    if (!is_seen(path / run::kManifestFile)) continue;
    const auto step = run::step_of(path);
    if (step && !run::is_strangers(path, owner)) newest = std::max(newest, step);
  }
  return newest;
}

std::string describe_left_behind(const fs::path& checkpoint_dir, int64_t step) {
  const std::optional<int64_t> newest = newest_checkpoint(checkpoint_dir);
  std::string text = "ended at once by a second SIGINT: ";
  text += newest ? fmt::format("newest checkpoint step {}", *newest)
                 : "there is no checkpoint";
  const int64_t first = newest.value_or(0) + 1;
  if (step > first) {
    text += fmt::format("; steps {} to {} will be trained again", first, step);
  } else if (step == first) {
    text += fmt::format("; step {} will be trained again", step);
  }
  return text;
}

}  // namespace longhaul::cluster
