#include "longhaul/optim/optimizer.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>

#include "longhaul/comm/backend.h"
#include "longhaul/optim/adamw_composite.h"

namespace longhaul::optim {
namespace {

AdamWTensors random_state(at::ScalarType weight, at::ScalarType moments) {
  at::manual_seed(4);
  const at::Tensor master = at::randn({5000});
  return {at::randn({5000}), master, at::randn({5000}).mul(0.1).to(moments),
          at::rand({5000}).mul(0.1).to(moments), master.to(weight)};
}

TEST(AdamWComposite, IsTheFusedUpdate) {
  for (const auto convention : {AdamConvention::Torch, AdamConvention::Hf}) {
    for (const auto moments : {at::kFloat, at::kBFloat16}) {
      AdamWStep step;
      step.convention = convention;
      step.lr = 1e-2;
      step.weight_decay = 0.1;
      step.grad_scale = 0.7;
      step.update = 3;
      const AdamWTensors a = random_state(at::kBFloat16, moments);
      const AdamWTensors b = random_state(at::kBFloat16, moments);
      adamw_composite(a, step);
      adamw_update({5000, b.gradient.data_ptr(), DType::F32, b.master.data_ptr<float>(),
                    b.exp_avg.data_ptr(), b.exp_avg_sq.data_ptr(),
                    moments == at::kFloat ? DType::F32 : DType::BF16, b.weight.data_ptr(),
                    DType::BF16},
                   step);
      const auto close = [](const at::Tensor& x, const at::Tensor& y, double tolerance) {
        return (x.to(at::kDouble) - y.to(at::kDouble)).abs().max().item<double>() <=
               tolerance;
      };
      EXPECT_TRUE(close(a.master, b.master, 1e-6));
      EXPECT_TRUE(close(a.exp_avg, b.exp_avg, moments == at::kFloat ? 1e-6 : 4e-3));
      EXPECT_TRUE(close(a.exp_avg_sq, b.exp_avg_sq, moments == at::kFloat ? 1e-6 : 4e-3));
      EXPECT_TRUE(close(a.weight, b.weight, 2e-2));
    }
  }
}

struct Model {
  std::vector<ParameterPtr> parameters = {make_parameter("b", {40, 50}, {}),
                                          make_parameter("a", {700}, {}),
                                          make_parameter("frozen", {30}, {})};
  FlatBuffers flat{parameters,
                   {{1.0, 0.1, false}, {0.5, 0.0, false}, {1.0, 0.0, true}},
                   {DType::BF16},
                   at::kCPU,
                   2};
};

TEST(Optimizer, NormOfShardsIsTheNormOfTheWhole) {
  Model model;
  at::manual_seed(2);
  double expected = 0.0;
  for (const ParameterPtr& p : model.parameters) {
    if (p->frozen()) continue;
    at::Tensor grad = p->grad();
    grad.copy_(at::randn(grad.sizes()));
    expected += grad.to(at::kDouble).square().sum().item<double>();
  }
  const auto self = comm::self_world();
  double sharded = 0.0;
  for (int rank = 0; rank < 2; ++rank) {
    const Optimizer half(model.flat, {},
                         [&](const Bucket& b) { return b.shard(rank, 2); });
    const double norm = half.gradient_norm(*self, false);
    sharded += norm * norm;
  }
  const Optimizer whole(model.flat, {},
                        [](const Bucket& b) { return FlatRange{0, b.num_elements}; });
  EXPECT_NEAR(whole.gradient_norm(*self, false), std::sqrt(expected), 1e-9);
  EXPECT_NEAR(std::sqrt(sharded), std::sqrt(expected), 1e-9);
}

TEST(Optimizer, MovesWeightsByTheirClassAndLeavesFrozenOnes) {
  Model model;
  for (const ParameterPtr& p : model.parameters) {
    at::Tensor w = p->weight();
    w.fill_(1.0);
    if (!p->frozen()) at::Tensor(p->grad()).fill_(1.0);
  }
  Optimizer optimizer(model.flat, {},
                      [](const Bucket& b) { return FlatRange{0, b.num_elements}; });
  optimizer.step(0.25, 1.0);
  // The first update is lr * lr_scale whatever the gradient; decay comes on top.
  const auto value = [&](int i) {
    return model.parameters[static_cast<size_t>(i)]->weight().flatten()[0].item<float>();
  };
  EXPECT_NEAR(value(0), 1.0 - 0.25 * 0.1 - 0.25, 4e-3);
  EXPECT_NEAR(value(1), 1.0 - 0.125, 4e-3);
  EXPECT_EQ(value(2), 1.0F);
  EXPECT_EQ(optimizer.updates(), 1);
}

TEST(Optimizer, MasterSharesMemoryWithWeightsOfTheSameDtype) {
  const std::vector<ParameterPtr> parameters = {make_parameter("w", {2000}, {})};
  FlatBuffers flat(parameters, {{}}, {DType::F32}, at::kCPU, 1);
  const Optimizer optimizer(flat, {},
                            [](const Bucket& b) { return FlatRange{0, b.num_elements}; });
  EXPECT_EQ(optimizer.states()[0].master.data_ptr(),
            flat.buckets()[0].weights.data_ptr());
  EXPECT_EQ(optimizer.bytes(), 2 * 4 * flat.buckets()[0].num_elements);
}

}  // namespace
}  // namespace longhaul::optim
