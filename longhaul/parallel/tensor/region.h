#pragma once

#include "longhaul/comm/communicator.h"
#include "longhaul/nn/forward_context.h"

namespace longhaul::parallel {

/// The layers between `enter` and `leave`, whose features are split over tp ranks.
/// Without sequence parallelism every rank has all tokens outside of regions. `enter`
/// passes its input on, and its backward sums gradients (all-reduce); `leave` sums
/// results. These are two all-reduces a layer in each direction (Shoeybi et al.,
/// "Megatron-LM", section 3).
/// With sequence parallelism rank r has rows [r, r + 1) T / ranks outside of regions.
/// `enter` gathers rows, and its backward sums and scatters gradients; `leave` does the
/// reverse (Korthikanti et al., "Reducing Activation Recomputation", section 4.2). The
/// gathered rows are not kept: the linear layers that enter the region share one more
/// gather in their backward, which runs beside the product of the input's gradient. The
/// weight gradients of these layers run beside the sum of that gradient, unless the
/// schedule defers them. Sums have the activations' dtype; the communicator adds them in
/// fp32 and in rank order, so that replicated tensors stay equal to the last bit.
/// Activations that are not contiguous are copied. Every method but outside is
/// Collective, and so are the backwards of the results; `tp` must live until then.
class TensorRegion final : public nn::SplitRegion {
 public:
  TensorRegion(comm::Communicator& tp, bool sequence) : tp_(tp), sequence_(sequence) {}

  int64_t ranks() const override { return tp_.size(); }
  int64_t token_parts() const override { return sequence_ ? tp_.size() : 1; }
  at::Tensor outside(const at::Tensor& rows) const override;
  ops::LinearInput enter(const at::Tensor& x) const override;
  /// With sequence parallelism T must be a multiple of ranks(). Without it the result
  /// takes over the memory of `partial`, which no graph may have saved.
  at::Tensor leave(const at::Tensor& partial) const override;
  /// Uses one small all-gather and adds the values in rank order.
  void combine_loss(at::Tensor& lse, at::Tensor& picked) const override;
  /// Uses one all-reduce.
  void sum_features(at::Tensor& sums) const override;

 private:
  comm::Communicator& tp_;
  bool sequence_;
};

}  // namespace longhaul::parallel
