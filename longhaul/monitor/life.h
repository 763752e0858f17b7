#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/monitor/goodput.h"

namespace longhaul::monitor {

/// What the run does from a time on, if no step, save or validation says more.
struct LifeChange {
  int64_t time = 0;  ///< microseconds since 1970
  TimeClass kind = TimeClass::Other;
};

/// The life of a run: when it starts up, trains, is down while somebody brings it back,
/// or is left alone between jobs.
struct Life {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t starts = 0;
  std::vector<LifeChange> changes;  ///< by time
};

/// Converts seconds to microseconds; times that no clock can have are brought into range.
int64_t to_micros(double seconds);

/// Returns whether an event says that a PAUSE file was seen.
bool begins_pause(const Event& event);
/// Returns whether an event says that training goes on after a pause, or ends.
bool ends_pause(const Event& event);

Life life_of(const Records& records, const std::vector<Event>& events,
             std::optional<double> until);

}  // namespace longhaul::monitor
