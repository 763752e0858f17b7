#include "longhaul/nn/feed_forward.h"

#include "longhaul/ops/swiglu.h"

namespace longhaul::nn {

FeedForward::FeedForward(const std::string& name, int64_t hidden, int64_t inner,
                         double stddev)
    : gate_(name + ".gate_proj", hidden, inner, stddev),
      up_(name + ".up_proj", hidden, inner, stddev),
      down_(name + ".down_proj", inner, hidden, stddev) {}

at::Tensor FeedForward::forward(const at::Tensor& x,
                                const ForwardContext& context) const {
  return down_.forward(
      ops::swiglu(gate_.forward(x, context), up_.forward(x, context), context.fused),
      context);
}

std::vector<ParameterPtr> FeedForward::parameters() const {
  return {gate_.weight(), up_.weight(), down_.weight()};
}

}  // namespace longhaul::nn
