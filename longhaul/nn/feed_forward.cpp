#include "longhaul/nn/feed_forward.h"

#include "longhaul/ops/recomputed.h"
#include "longhaul/ops/swiglu.h"

namespace longhaul::nn {

FeedForward::FeedForward(ParameterSet& parameters, const std::string& name)
    : gate_(parameters, name + ".gate_proj"),
      up_(parameters, name + ".up_proj"),
      down_(parameters, name + ".down_proj") {}

at::Tensor FeedForward::forward(const at::Tensor& x,
                                const ForwardContext& context) const {
  const auto inputs = Linear::forward_all({&gate_, &up_}, context.enter(x), context);
  const auto product = [fused = context.fused](const std::vector<at::Tensor>& t) {
    return ops::swiglu(t[0], t[1], fused);
  };
  const ops::LinearInput inner =
      context.selective_recompute ? ops::recomputed(product, inputs) : product(inputs);
  return context.leave(down_.forward(inner, context));
}

GeluFeedForward::GeluFeedForward(ParameterSet& parameters, const std::string& name,
                                 Gelu form)
    : up_(parameters, name + ".up_proj", Bias::Yes),
      down_(parameters, name + ".down_proj", Bias::Yes),
      form_(form) {}

at::Tensor GeluFeedForward::forward(const at::Tensor& x,
                                    const ForwardContext& context) const {
  const at::Tensor up = up_.forward(context.enter(x), context);
  const auto gelu = [form = form_,
                     fused = context.fused](const std::vector<at::Tensor>& t) {
    return ops::gelu(t[0], form, fused);
  };
  return down_.forward(
      context.selective_recompute ? ops::recomputed(gelu, {up}) : gelu({up}), context);
}

}  // namespace longhaul::nn
