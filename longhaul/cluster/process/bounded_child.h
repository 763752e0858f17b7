#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace longhaul::cluster {

/// What a child of run_in_bounded_child() wrote, and how the child ended.
struct BoundedAnswer {
  std::string text;      ///< what the child wrote until its end or its deadline
  bool in_time = false;  ///< the child ended by itself
  int signal = 0;        ///< the signal that ended the child before its deadline; 0: none
};

/// Runs `work` in a forked child for at most `deadline_seconds`, and returns what the
/// work passes to `write`. Serves calls that may hang or crash, such as a call into a
/// file system that does not answer or into a driver's library. Leaves behind a child
/// that not even SIGKILL ends, since it waits in the kernel. Must not be called in a
/// process whose other threads may hold locks.
BoundedAnswer run_in_bounded_child(
    const std::function<void(const std::function<void(std::string_view)>& write)>& work,
    double deadline_seconds, size_t max_bytes = size_t{1} << 20);

}  // namespace longhaul::cluster
