#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "longhaul/ops/linear.h"
#include "longhaul/ops/ops_test_support.h"
#include "longhaul/ops/swiglu.h"
#include "longhaul/parallel/recompute/recompute.h"

namespace longhaul::parallel {
namespace {

TEST(Recompute, GivesTheSameBitsAsRunningPlainly) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({40, 32}), w = at::randn({32, 32}),
                   dy = at::randn({40, 32});
  const auto run = [&](bool again) {
    const auto weight = ops::bound(w);
    const auto queue = std::make_shared<ops::WeightGradients>();
    const nn::BlockFunction block = [&](const at::Tensor& in) {
      const at::Tensor y = ops::linear(in, weight, queue);
      return ops::swiglu(y, ops::linear(y, weight, queue), true);
    };
    const at::Tensor in = ops::leaf(x);
    const at::Tensor out = again ? recompute(block, in) : block(in);
    ops::backward(out, dy);
    return std::vector<at::Tensor>{out.detach(), in.grad(), weight->grad()};
  };
  const auto plain = run(false);
  const auto again = run(true);
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(at::equal(plain[i], again[i])) << i;
}

}  // namespace
}  // namespace longhaul::parallel
