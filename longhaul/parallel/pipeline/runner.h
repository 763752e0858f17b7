#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/layout/pipeline/plan.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/parallel/pipeline/trace.h"

namespace longhaul::parallel {

using Shapes = std::vector<std::vector<int64_t>>;

/// What a plan drives: the stages of one rank, by chunk. Every method may be a collective
/// of the ranks that share the stage.
/// For each (chunk, micro batch) the methods are called in the order forward, backward,
/// weight_gradients; under an inference plan only forward.
class PipelineStage {
 public:
  virtual ~PipelineStage() = default;

  /// Shapes of the tensors that pass between stages; the same at every boundary of a
  /// micro batch and on both of its sides.
  virtual Shapes boundary_shapes(int64_t micro_batch) = 0;
  /// `input` is without graph, contiguous, of boundary_shapes, and the stage's to keep:
  /// its memory is never used again by others. Empty for the first global stage.
  /// Returns the output; the last global stage returns nothing.
  virtual nn::Tensors forward(int64_t chunk, int64_t micro_batch,
                              const nn::Tensors& input) = 0;
  /// `grads` are the gradients of the output, empty for the last global stage. Returns
  /// those of the input; the first global stage returns nothing.
  virtual nn::Tensors backward(int64_t chunk, int64_t micro_batch,
                               const nn::Tensors& grads) = 0;
  /// Adds what the backward of this micro batch has enqueued.
  virtual void weight_gradients(int64_t chunk, int64_t micro_batch) = 0;
};

/// What passes between stages, apart from its shapes.
struct BoundaryOptions {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

/// Runs this rank's part of the plan: one step. Collective over `pp`, whose ranks are the
/// plan's and all pass the same plan; its memory must be that of the boundary's device.
/// Sends start as soon as there is something to send and are never waited for before the
/// end of the step; receives are posted ahead. Where transfers run in the order of their
/// calls, both are posted in groups (SlotOrder). The tensors of a boundary are one
/// message; what was sent is freed when it has ended. The first exception ends the step
/// without waiting for anything; one that a message caused (TemporaryError at the
/// communicator's deadline) says which action waited for which rank. `trace`, if given,
/// records actions and waits.
void execute(const PipelinePlan& plan, PipelineStage& stage, comm::Communicator& pp,
             const BoundaryOptions& boundary, Trace* trace = nullptr);

}  // namespace longhaul::parallel
