#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "longhaul/run/events.h"

namespace longhaul::monitor {

/// One clock for all that the starts of a run have written: the clock of its first event.
/// If the wall clock was set between two starts on a machine, the second start says that
/// the machine was booted at another time than the first said, and the difference is the
/// jump. If the clock of a start on another machine is behind, the times of that start
/// begin with the newest time that is known.
class RunClock {
 public:
  /// Returns the time of an event by the run's clock. Events must come in the order of
  /// events.jsonl.
  double time_of(const run::EventHead& event);
  /// Returns by how many seconds the times of an attempt's rows in metrics.jsonl have to
  /// be moved.
  double shift_of(int64_t attempt) const;
  /// Returns the time by the run's clock if this machine has written events of the run,
  /// and else `system_now`.
  double now(double system_now) const;

 private:
  std::map<std::string, double> booted_;  ///< of each boot, by the run's clock
  std::map<int64_t, double> shifts_;      ///< by attempt
  double newest_ = 0.0;
};

}  // namespace longhaul::monitor
