#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/config/hardware_profile.h"
#include "longhaul/run/events.h"

namespace longhaul::measure {

/// What a rank's part of a step has to do, whatever does it.
struct StepWork {
  double product_flops = 0.0;    ///< of matrix products, forward and backward
  double attention_flops = 0.0;  ///< of the scores that causality leaves
  double update_bytes = 0.0;     ///< that the optimizer reads and writes
};

/// A part of a step's time, by what it was spent for.
struct Cause {
  std::string name;
  double seconds = 0.0;
  /// What the machine would need for the same work at the rates of its profile; absent:
  /// in a step at the machine's rates there is nothing of it.
  std::optional<double> at_rate;
};

/// The operations of a profiled step by cause, the longest first; together they are the
/// step. `dtype`: "bf16" or "fp32", of the products.
std::vector<Cause> causes_of(const ProfileEvent& step, const StepWork& work,
                             const HardwareProfile& machine, const std::string& dtype);

/// Of several profiled steps the one of median length.
const ProfileEvent& typical_step(const std::vector<ProfileEvent>& steps);

}  // namespace longhaul::measure
