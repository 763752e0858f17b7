#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace longhaul::cluster {

struct BoundedAnswer {
  std::string text;      ///< what it wrote until its end or its deadline
  bool in_time = false;  ///< it ended by itself
  int signal = 0;        ///< that ended it, where it is dead and not of our doing
};

/// Runs `work` in a forked child for at most so long; what it passes to `write` comes
/// back. For calls that may hang or crash: a file system that does not answer, a driver's
/// library. A child that not even SIGKILL ends (it waits in the kernel) is left behind.
/// Not from a process with other threads that may hold locks.
BoundedAnswer run_in_bounded_child(
    const std::function<void(const std::function<void(std::string_view)>& write)>& work,
    double deadline_seconds, size_t max_bytes = size_t{1} << 20);

}  // namespace longhaul::cluster
