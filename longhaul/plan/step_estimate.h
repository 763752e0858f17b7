#pragma once

#include <span>
#include <string>
#include <vector>

#include "longhaul/layout/rank_costs.h"
#include "longhaul/plan/machine.h"

namespace longhaul::plan {

/// A part of a step's time that serves one purpose.
struct TimePart {
  std::string name;      ///< "matrix products", "exchanges over tp" ...
  double seconds = 0.0;  ///< seconds that add to the step
  double hidden = 0.0;   ///< seconds beside which the device computes
};

/// The time of one step, on the stage that computes longest.
struct StepEstimate {
  double seconds = 0.0;
  std::vector<TimePart> parts;  ///< the exposed seconds add up to `seconds`
  double bubble = 0.0;          ///< share of the step in which that stage waits
  double tokens_per_s = 0.0;    ///< of the whole run
  double mfu = 0.0;             ///< counts full attention
  double mfu_causal = 0.0;
};

/// What the time of a step follows from.
struct PlannedRun {
  const RunConfig& config;
  const ModelDescription& model;
  const layout::LayoutDescription& layout;
  std::span<const layout::RankCosts> costs;  ///< of the first rank of each stage
};

/// Returns the bytes that an update moves for a parameter: its gradient read for the norm
/// and for the update, master and moments read and written, the weight written where it
/// is no master itself.
double bytes_of_update(const PrecisionSection& precision);

/// Estimates the time of a step from the rates of a machine:
/// - a unit's products and attention take their operations at the machine's rates, the
///   backward twice the forward, and what is recomputed once more;
/// - products of experts have the rate of the rows that each expert gets at even loads;
/// - what is left of a unit moves the tensors that it keeps through memory: written and
///   read in the forward; read, and their gradients written and read, in the backward;
/// - exchanges within a pass (tp, cp, ep) hold the pass up;
/// - the actions of the pipeline are played through (play);
/// - gradients are reduced beside the last backward, or with ZeRO 2 and 3 beside all, as
///   far as these are long enough; one bucket has nothing beside it;
/// - weights are gathered likewise beside the next step's first forward, or with ZeRO 3
///   beside all passes, where gradients have their part of the time;
/// - the optimizer moves its state through memory.
StepEstimate estimate_step(const PlannedRun& run, const Machine& machine);

}  // namespace longhaul::plan
