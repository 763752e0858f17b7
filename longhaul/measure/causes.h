#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/config/hardware_profile.h"
#include "longhaul/run/events.h"

namespace longhaul::measure {

/// The work that a rank does in a step, counted by its arithmetic and its bytes, whatever
/// code computes it.
struct StepWork {
  double product_flops = 0.0;    ///< matrix products, forward and backward
  double attention_flops = 0.0;  ///< attention, without masked pairs of queries and keys
  double update_bytes = 0.0;     ///< bytes that norm and optimizer read and write
};

/// A part of a step's time that was spent for one purpose.
struct Cause {
  std::string name;
  double seconds = 0.0;
  /// The seconds that the machine needs for the work at the rates of its profile. Absent
  /// where StepWork has no such work or the profile has no such rate.
  std::optional<double> at_rate;
};

/// Returns the time of a profiled step by cause, the longest first. The causes add up to
/// the step. `dtype` is the products' dtype, "bf16" or "fp32".
std::vector<Cause> causes_of(const run::ProfileEvent& step, const StepWork& work,
                             const HardwareProfile& machine, const std::string& dtype);

/// Returns the profiled step of median length.
const run::ProfileEvent& typical_step(const std::vector<run::ProfileEvent>& steps);

}  // namespace longhaul::measure
