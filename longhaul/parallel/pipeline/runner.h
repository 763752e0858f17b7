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

/// The stages of one rank, one for each chunk, as execute() runs them. Every method may
/// be a collective of the ranks that share the stage. For each chunk and micro batch the
/// methods are called in the order forward, backward, weight_gradients; an inference plan
/// calls only forward.
class PipelineStage {
 public:
  virtual ~PipelineStage() = default;

  /// Returns the shapes of the tensors that pass between stages. They are equal at every
  /// boundary of a micro batch and on both sides.
  virtual Shapes boundary_shapes(int64_t micro_batch) = 0;
  /// Runs the forward of a chunk. `input` has boundary_shapes, is contiguous and has no
  /// graph; for the first global stage the input is empty. The stage may keep the input,
  /// since nobody else uses its memory again. Returns the output; the last global stage
  /// returns nothing.
  virtual nn::Tensors forward(int64_t chunk, int64_t micro_batch,
                              const nn::Tensors& input) = 0;
  /// Runs the backward of a chunk. `grads` are the gradients of the output, empty for the
  /// last global stage. Returns the gradients of the input; the first global stage
  /// returns nothing.
  virtual nn::Tensors backward(int64_t chunk, int64_t micro_batch,
                               const nn::Tensors& grads) = 0;
  /// Computes the weight gradients that the backward of this micro batch has deferred.
  virtual void weight_gradients(int64_t chunk, int64_t micro_batch) = 0;
};

/// Dtype and device of the tensors that pass between stages.
struct BoundaryOptions {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

/// Runs this rank's part of the plan: one step. Collective over `pp`, whose ranks are the
/// plan's; all ranks give the same plan. `pp` must be a group for memory of the
/// boundary's device. Sends start as soon as there is something to send and are waited
/// for only at the end of the step; receives are posted ahead. If transfers run in the
/// order of the calls, both are posted in groups (SlotOrder). The tensors of a boundary
/// are one message, whose memory is freed when the send has ended. The first exception
/// ends the step without waiting for anything. The error of a message (TemporaryError at
/// the communicator's deadline) says which action waited for which rank. `trace`, if
/// given, records actions and waits.
void execute(const layout::PipelinePlan& plan, PipelineStage& stage,
             comm::Communicator& pp, const BoundaryOptions& boundary,
             Trace* trace = nullptr);

}  // namespace longhaul::parallel
