#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

namespace longhaul::cluster {

/// Work in a forked child, beside this process, which never waits for it. A child that
/// waits in the kernel is left behind. Where other threads may hold locks, the work makes
/// only calls that are allowed after a fork.
class BackgroundChild {
 public:
  explicit BackgroundChild(const std::function<void()>& work);
  /// Kills the child where it has not ended.
  ~BackgroundChild();
  BackgroundChild(const BackgroundChild&) = delete;
  BackgroundChild& operator=(const BackgroundChild&) = delete;

  /// Returns how the work has ended: true where it did not throw and was not killed.
  /// Nothing: it has not ended. Where no child could be made it has failed.
  std::optional<bool> poll();

 private:
  pid_t child_ = -1;
  bool good_ = false;
};

}  // namespace longhaul::cluster
