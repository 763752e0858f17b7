#include "longhaul/nn/feed_forward.h"

#include "longhaul/ops/recomputed.h"
#include "longhaul/ops/swiglu.h"

namespace longhaul::nn {

FeedForward::FeedForward(const std::string& name, int64_t hidden, int64_t inner,
                         double stddev)
    : gate_(name + ".gate_proj", hidden, inner, stddev),
      up_(name + ".up_proj", hidden, inner, stddev),
      down_(name + ".down_proj", inner, hidden, stddev) {}

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

std::vector<ParameterPtr> FeedForward::parameters() const {
  return {gate_.weight(), up_.weight(), down_.weight()};
}

}  // namespace longhaul::nn
