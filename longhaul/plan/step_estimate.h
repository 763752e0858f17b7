#pragma once

#include <string>
#include <vector>

#include "longhaul/layout/rank_costs.h"
#include "longhaul/plan/machine.h"

namespace longhaul::plan {

/// A part of a step's time that serves one purpose.
struct TimePart {
  std::string name;      ///< "matrix products", "sums over tp" ...
  double seconds = 0.0;  ///< seconds that add to the step
  double hidden = 0.0;   ///< seconds beside which the device computes
};

/// The time of one step, on the stage that computes longest.
struct StepEstimate {
  double seconds = 0.0;
  std::vector<TimePart> parts;  ///< the exposed seconds add up to `seconds`
  double bubble = 0.0;          ///< share of the step in which that stage waits
  double tokens_per_s = 0.0;    ///< of the whole run
  double mfu = 0.0;             ///< where a token sees the positions up to itself
  double mfu_full = 0.0;        ///< where a token sees the whole sequence
};

/// What the time of a step follows from.
struct PlannedRun {
  const RunConfig& config;
  const ModelDescription& model;
  const layout::LayoutDescription& layout;
  const layout::LayoutCosts& costs;
};

/// Returns the bytes that an update moves for a parameter: its gradient read, master and
/// moments read and written, the weight written where it is no master itself.
double bytes_of_update(const PrecisionSection& precision);

/// Estimates the time of a step from the rates of a machine:
/// - a unit's products and attention take their operations at the machine's rates, the
///   backward twice the forward, and what is recomputed once more;
/// - what is left of a unit moves the tensors that it keeps through memory: written and
///   read in the forward; read, and their gradients written and read, in the backward;
/// - exchanges within a pass (tp, cp, ep) hold the pass up;
/// - the actions of the pipeline are played through (play);
/// - gradients are reduced beside the last backward, and gathers of ZeRO 3 beside the
///   passes, as far as these are long enough; the first bucket waits for nothing else;
/// - the optimizer moves its state through memory, and ZeRO 1 and 2 gather the weights
///   afterwards.
StepEstimate estimate_step(const PlannedRun& run, const Machine& machine);

}  // namespace longhaul::plan
