#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

namespace longhaul::cluster {

/// Names the functions that a stopped thread of another process is in. unwind_dw.cpp, or
/// no_unwind.cpp in a build without libdw.
class Unwinder {
 public:
  /// False in a build without libdw.
  static bool is_built();
  /// Of libdw; "not built in" without it.
  static std::string version();
  explicit Unwinder(pid_t pid);
  ~Unwinder();
  Unwinder(const Unwinder&) = delete;
  Unwinder& operator=(const Unwinder&) = delete;

  /// One line per function, the innermost first, of a thread that this process has
  /// stopped by ptrace; at the end why there are no more, where that is not the thread's
  /// own beginning.
  std::string frames(pid_t thread);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::cluster
