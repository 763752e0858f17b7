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
  const ops::LinearInput in = context.enter(x);
  const at::Tensor gate = gate_.forward(in, context);
  const at::Tensor up = up_.forward(in, context);
  const auto product = [fused = context.fused](const std::vector<at::Tensor>& t) {
    return ops::swiglu(t[0], t[1], fused);
  };
  const ops::LinearInput inner = context.selective_recompute
                                     ? ops::recomputed(product, {gate, up})
                                     : product({gate, up});
  return context.leave(down_.forward(inner, context));
}

}  // namespace longhaul::nn
