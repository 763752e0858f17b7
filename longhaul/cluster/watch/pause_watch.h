#pragma once

#include <functional>

namespace longhaul::cluster {

/// Tells a process of its own pauses (SIGSTOP, a machine that stood still, blocked I/O),
/// so that the process does not take its own pause for a silence of others. All calls
/// come from one thread.
class PauseWatch {
 public:
  /// Seconds of a clock that only goes forward.
  using Clock = std::function<double()>;

  /// Takes a turn of the loop that is longer than `longest_turn` seconds as a pause. An
  /// empty clock stands for the machine's monotonic clock.
  explicit PauseWatch(double longest_turn, Clock clock = {});

  /// Call it at each turn of the loop. Returns the seconds since the last call if they
  /// were a pause, else 0. After a pause the caller lets every silence begin anew.
  double turn();
  /// Returns the seconds since the end of the last pause, or since the beginning.
  double awake_seconds() const;

 private:
  double longest_turn_;
  Clock clock_;
  double turned_;
  double woke_;
};

}  // namespace longhaul::cluster
