#pragma once

#include <cstdint>
#include <vector>

namespace longhaul::parallel {

/// One thing that a stage does in a step.
struct Action {
  enum class Kind {
    Forward,          ///< of one micro batch
    Backward,         ///< of one micro batch: input gradients, weight gradients enqueued
    WeightGradients,  ///< drains what the backwards have enqueued
    ReduceGradients,  ///< sums gradients over replicas; after the last drain
  };
  Kind kind;
  int64_t micro_batch = 0;
};

/// A schedule is data: what one stage does, in order. Backwards and drains come in
/// ascending micro batches.
using Schedule = std::vector<Action>;

/// The schedule of a pipeline of one stage: each micro batch forward, backward, drained.
Schedule single_stage_schedule(int64_t micro_batches);

/// What a schedule drives. Every method may be a collective of the stage's ranks.
class StageActions {
 public:
  virtual ~StageActions() = default;
  virtual void forward(int64_t micro_batch) = 0;
  virtual void backward(int64_t micro_batch) = 0;
  virtual void weight_gradients() = 0;
  virtual void reduce_gradients() = 0;
};

/// Runs the actions in order; the first exception ends it.
void execute(const Schedule& schedule, StageActions& stage);

}  // namespace longhaul::parallel
