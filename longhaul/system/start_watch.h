#pragma once

#include <functional>

#include "longhaul/system/repeated_work.h"

namespace longhaul::system {

/// Ends a process that is asked to end while it starts: if the SignalWatch has noted a
/// signal and this object still lives `grace_seconds` later, the process ends by _exit. A
/// start may keep the main thread busy for long, and has nothing yet that would have to
/// be saved.
class StartWatch {
 public:
  /// `say` is called with the signal, for a last word, by the thread that ends the
  /// process.
  StartWatch(int exit_code, double grace_seconds, std::function<void(int signal)> say);

 private:
  RepeatedWork looks_;
};

}  // namespace longhaul::system
