#pragma once

#include <functional>

namespace longhaul::cluster {

/// Tells a process of its own pauses (SIGSTOP, a machine that stood still, blocked I/O),
/// so that it takes none of them for the silence of others. One thread.
class PauseWatch {
 public:
  /// Seconds of a clock that only goes forward.
  using Clock = std::function<double()>;

  /// A turn of the loop that takes longer than `longest_turn` seconds is a pause. An
  /// empty clock is the machine's monotonic one.
  explicit PauseWatch(double longest_turn, Clock clock = {});

  /// To be called at each turn. Seconds since the last call where that was a pause, else
  /// 0: every clock of somebody's silence begins anew then.
  double turn();
  /// Seconds since the end of the last pause, or since the beginning.
  double awake_seconds() const;

 private:
  double longest_turn_;
  Clock clock_;
  double turned_;
  double woke_;
};

}  // namespace longhaul::cluster
