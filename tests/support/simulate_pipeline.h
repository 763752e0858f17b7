#pragma once

#include "longhaul/layout/pipeline/plan.h"

namespace longhaul {

/// The times of the actions of one chunk, in any unit.
struct PipelineTimes {
  double forward = 1.0;
  double backward = 1.0;  ///< without the weight gradients
  double weight_gradients = 1.0;
  double transfer =
      0.0;  ///< a message's time, from the later of its send and its receive
};

/// The times and the memory of a plan.
struct PipelineSimulation {
  double makespan = 0.0;
  std::vector<double> bubble;  ///< for each rank its idle share of the makespan, 0 .. 1
  /// For each rank the most pairs of chunk and micro batch whose forward has begun and
  /// whose weight gradients are not done.
  std::vector<int64_t> peak_live;
};

/// Throws Error where a rank's list breaks a rule: each micro batch goes once forward
/// through each chunk, then once backward, then through weight gradients, in ascending
/// order.
void check_order(const layout::PipelinePlan& plan);

/// Checks the order, then plays the plan as parallel::execute() would run it: messages
/// start when both sides have posted them, and a rank does one action at a time. Throws
/// Error on a deadlock, with the ranks and the actions in which they wait.
PipelineSimulation simulate_pipeline(const layout::PipelinePlan& plan,
                                     const PipelineTimes& times);

}  // namespace longhaul
