#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "longhaul/ops/gated_product.h"
#include "longhaul/ops/linear/linear.h"
#include "longhaul/parallel/recompute/recompute.h"
#include "tests/support/parameters.h"

namespace longhaul::parallel {
namespace {

TEST(Recompute, GivesTheSameBitsAsRunningPlainly) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({40, 32}), w = at::randn({32, 32}),
                   dy = at::randn({40, 32});
  const auto run = [&](bool again) {
    const auto weight = ops::bound(w);
    const auto queue = std::make_shared<ops::WeightGradients>();
    const BlockFunction block = [&](const nn::Tensors& in) {
      const at::Tensor y = ops::linear(in[0], weight, queue);
      return nn::Tensors{
          ops::gated_product(y, ops::linear(y, weight, queue), Activation::Silu, true),
          in[1] * y.sum()};
    };
    const nn::Tensors in = {ops::leaf(x), ops::leaf(dy)};
    const nn::Tensors out = again ? recompute(block, in) : block(in);
    torch::autograd::backward(out, {dy, x});
    return nn::Tensors{out[0].detach(), out[1].detach(), in[0].grad(), in[1].grad(),
                       weight->grad()};
  };
  const auto plain = run(false);
  const auto again = run(true);
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(at::equal(plain[i], again[i])) << i;
}

}  // namespace
}  // namespace longhaul::parallel
