#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

namespace longhaul::cluster {

/// Work in a forked child, beside this process. This process never waits for the child. A
/// child that waits in the kernel is left behind. If other threads may hold locks, the
/// work makes only calls that are allowed after a fork.
class BackgroundChild {
 public:
  explicit BackgroundChild(const std::function<void()>& work);
  /// Kills the child if it has not ended.
  ~BackgroundChild();
  BackgroundChild(const BackgroundChild&) = delete;
  BackgroundChild& operator=(const BackgroundChild&) = delete;

  /// Returns how the work has ended: true if it did not throw and was not killed. Returns
  /// nothing if it has not ended. If no child could be made, the work has failed.
  std::optional<bool> poll();

 private:
  pid_t child_ = -1;
  bool good_ = false;
};

}  // namespace longhaul::cluster
