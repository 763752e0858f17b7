#pragma once

#include <optional>
#include <string>

namespace longhaul {

// Three clocks. unix_time() (process.h) is for what is written and for durations within a
// process: it begins at the wall clock's time and goes on with the machine's, so that a
// wall clock that is set meanwhile moves nothing. A process that a supervisor starts
// takes over its clock. All functions may be called by any thread.

/// Seconds since this machine was started: the same for all its processes, never set.
double machine_seconds();
/// Seconds since 1970 by the wall clock, wherever it was just set to.
double system_time();

/// The variable by which a process hands its clock to those that it starts.
inline constexpr const char* kClockVariable = "LONGHAUL_CLOCK";
/// Its value: which machine and start of it, unix_time() when it started, and now.
std::string clock_words();

/// Which clock the times of an event are of: `boot`, a name of this start of the machine,
/// and `booted`, when that was by the writer's clock. Two writers of the same boot that
/// say it differently have been started before and after a jump of the wall clock.
struct ClockName {
  std::string boot;
  double booted = 0.0;
};
ClockName own_clock();

/// Finds jumps of the wall clock. One thread.
class ClockWatch {
 public:
  /// Seconds that it has jumped, ahead where positive, since the last call, or since this
  /// process's clock began; nothing where that is less than a second.
  std::optional<double> look();

 private:
  double ahead_ = 0.0;
};

/// "the wall clock has jumped ahead by 14400.0 s; ..."
std::string describe_jump(double seconds);

}  // namespace longhaul
