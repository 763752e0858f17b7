#pragma once

#include "longhaul/comm/communicator.h"
#include "longhaul/nn/forward_context.h"

namespace longhaul::parallel {

/// A split region over the ranks of tensor parallelism.
/// Without sequence parallelism every rank has all tokens outside of regions: enter
/// passes on and sums gradients (all-reduce), leave sums results (Shoeybi et al.,
/// "Megatron-LM", section 3: two all-reduces a layer in each direction). With it, rank r
/// has rows [r, r + 1) T / ranks outside: enter gathers rows and its backward sums and
/// scatters gradients, leave the other way round (Korthikanti et al., "Reducing
/// Activation Recomputation", section 4.2). The gathered rows are not kept: the linear
/// layers that enter share one more gather in their backward. Sums are made in the
/// activations' dtype, which the communicator adds in fp32 and in rank order, so
/// replicated tensors stay equal to the last bit. Activations are contiguous or are made
/// so. Collective: every method but outside, and the backward of what it returns; `tp`
/// must live until then.
class TensorRegion final : public nn::SplitRegion {
 public:
  TensorRegion(comm::Communicator& tp, bool sequence) : tp_(tp), sequence_(sequence) {}

  int64_t ranks() const override { return tp_.size(); }
  int64_t token_parts() const override { return sequence_ ? tp_.size() : 1; }
  at::Tensor outside(const at::Tensor& rows) const override;
  ops::LinearInput enter(const at::Tensor& x) const override;
  /// With sequence parallelism T must be a multiple of ranks(). Without, the result takes
  /// the memory of `partial`, which no graph may have saved.
  at::Tensor leave(const at::Tensor& partial) const override;
  /// One small all-gather; added in rank order.
  void combine_loss(at::Tensor& lse, at::Tensor& picked) const override;
  /// One all-reduce.
  void sum_features(at::Tensor& sums) const override;

 private:
  comm::Communicator& tp_;
  bool sequence_;
};

}  // namespace longhaul::parallel
