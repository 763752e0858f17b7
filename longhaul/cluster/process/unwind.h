#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

namespace longhaul::cluster {

/// Names the functions in which a stopped thread of another process is. Implemented by
/// unwind_dw.cpp, or by no_unwind.cpp in a build without libdw.
class Unwinder {
 public:
  /// Returns false in a build without libdw.
  static bool is_built();
  /// Returns the version of libdw; "not built in" without it.
  static std::string version();
  explicit Unwinder(pid_t pid);
  ~Unwinder();

  /// Returns one line per function, the innermost first, of a thread that this process
  /// has stopped by ptrace. The last line says why the stack ends there, unless it ends
  /// at the thread's own beginning.
  std::string frames(pid_t thread);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::cluster
