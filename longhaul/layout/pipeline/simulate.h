#pragma once

#include "longhaul/layout/pipeline/plan.h"

namespace longhaul {

/// How long the actions of one chunk take, in any unit.
struct PipelineTimes {
  double forward = 1.0;
  double backward = 1.0;  ///< of the input
  double weight_gradients = 1.0;
  double transfer = 0.0;  ///< of one message, from the later of its send and its receive
};

struct PipelineSimulation {
  double makespan = 0.0;
  std::vector<double> bubble;      ///< per rank: idle share of the makespan, 0 .. 1
  std::vector<int64_t> peak_live;  ///< per rank: most (chunk, micro batch) whose forward
                                   ///< has begun and whose weight gradients are not done
};

/// Throws Error where a rank's list breaks a rule: each micro batch once forward through
/// each chunk, then once backward, then weight gradients, in ascending order.
void check_order(const PipelinePlan& plan);

/// Checks the order, then plays the plan as execute() would run it: messages start when
/// both sides have posted them, and a rank does one action at a time.
/// Throws Error on a deadlock, with the ranks and the actions that they wait in.
PipelineSimulation simulate_pipeline(const PipelinePlan& plan,
                                     const PipelineTimes& times);

}  // namespace longhaul
