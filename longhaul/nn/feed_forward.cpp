#include "longhaul/nn/feed_forward.h"

#include "longhaul/ops/gated_product.h"
#include "longhaul/ops/gelu.h"
#include "longhaul/ops/recomputed.h"

namespace longhaul::nn {

FeedForward::FeedForward(tensor::ParameterSet& parameters,
                         const families::FeedForward& form)
    : up_(parameters, form.up),
      down_(parameters, form.down),
      activation_(form.activation) {
  if (form.gate) gate_.emplace(parameters, *form.gate);
}

/// Returns the inputs of the activation: the results of gate and up, or of up alone.
std::vector<at::Tensor> FeedForward::inputs(const ops::LinearInput& x,
                                            const ForwardContext& context) const {
  if (gate_) return Linear::forward_all({&*gate_, &up_}, x, context);
  return {up_.forward(x, context)};
}

ops::LinearInput FeedForward::inner(const ops::LinearInput& x,
                                    const ForwardContext& context) const {
  const std::vector<at::Tensor> in = inputs(x, context);
  const auto act = [activation = activation_,
                    fused = context.fused](const std::vector<at::Tensor>& t) {
    return t.size() == 2 ? ops::gated_product(t[0], t[1], activation, fused)
                         : ops::gelu(t[0], activation, fused);
  };
  return context.selective_recompute ? ops::recomputed(act, in) : act(in);
}

at::Tensor FeedForward::forward(const at::Tensor& x,
                                const ForwardContext& context) const {
  return down_.forward(inner(context.enter(x), context), context);
}

at::Tensor FeedForward::partial(const ops::LinearInput& in,
                                const ForwardContext& context) const {
  return down_.partial(inner(in, context), context);
}

}  // namespace longhaul::nn
