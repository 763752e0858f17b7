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

/// Two trained parameters of two classes and a frozen one, on rank `shard` of `shards`.
struct Model {
  explicit Model(int shard = 0, int shards = 1)
      : flat({{parameters[0], {1.0, 0.1, false}, 0},
              {parameters[1], {0.5, 0.0, false}, 0},
              {parameters[2], {1.0, 0.0, true}, 0}},
             {DType::BF16}, at::kCPU, {shard, shards}) {}
  std::vector<ParameterPtr> parameters = {make_parameter("b", {40, 50}, {}),
                                          make_parameter("a", {70, 10}, {}),
                                          make_parameter("frozen", {30}, {})};
  std::vector<std::string> names = {"a", "b", "frozen"};
  FlatBuffers flat;
};

TEST(Optimizer, NormOfShardsIsTheNormOfTheWhole) {
  const auto self = comm::self_world();
  double expected = 0.0;
  double sharded = 0.0;
  for (int rank = 0; rank < 2; ++rank) {
    Model model(rank, 2);
    at::manual_seed(2);
    expected = 0.0;
    for (const ParameterPtr& p : model.parameters) {
      if (p->frozen()) continue;
      at::Tensor grad = p->grad();
      grad.copy_(at::randn(grad.sizes()));
      expected += grad.to(at::kDouble).square().sum().item<double>();
    }
    const Optimizer half(model.flat, {});
    const double norm = half.gradient_norm(*self, model.names);
    sharded += norm * norm;
  }
  EXPECT_NEAR(std::sqrt(sharded), std::sqrt(expected), 1e-9);
}

TEST(Optimizer, CountsCopiesOnce) {
  const ParameterPtr p = make_parameter("w", {2000}, {});
  for (const bool counted : {true, false}) {
    FlatBuffers flat({{p, {}, 0, 0, counted}}, {DType::F32}, at::kCPU);
    at::Tensor(p->grad()).fill_(2.0);
    const double norm = Optimizer(flat, {}).gradient_norm(*comm::self_world(), {"w"});
    EXPECT_NEAR(norm, counted ? 2.0 * std::sqrt(2000.0) : 0.0, 1e-9);
  }
}

/// The first update is lr * lr_scale whatever the gradient; decay comes on top.
void check_first_update(Model& model, const FlatRange& owned) {
  for (const FlatMember& member : model.flat.buckets()[1].members) {
    const bool decayed = member.parameter->name() == "b";
    const double expected = decayed ? 1.0 - 0.25 * 0.1 - 0.25 : 1.0 - 0.125;
    const FlatRange own = Bucket::overlap(member, owned);
    const at::Tensor w = member.parameter->weight().flatten();
    for (int64_t i = 0; i < member.num_elements; ++i) {
      const bool mine = i >= own.begin && i < own.end;
      ASSERT_NEAR(w[i].item<float>(), mine ? expected : 1.0, 4e-3) << i;
    }
  }
}

TEST(Optimizer, MovesOwnedWeightsByTheirClassAndLeavesFrozenOnes) {
  for (const auto& [shard, shards] : {std::pair(0, 1), {0, 2}, {1, 2}, {2, 4}}) {
    Model model(shard, shards);
    for (const ParameterPtr& p : model.parameters) {
      at::Tensor w = p->weight();
      w.fill_(1.0);
      if (!p->frozen()) at::Tensor(p->grad()).fill_(1.0);
    }
    Optimizer optimizer(model.flat, {});
    optimizer.step(0.25, 1.0);
    ASSERT_EQ(model.flat.buckets().size(), 2U);
    check_first_update(model, model.flat.buckets()[1].owned);
    EXPECT_EQ(model.parameters[2]->weight()[0].item<float>(), 1.0F);
    EXPECT_EQ(optimizer.updates(), 1);
  }
}

TEST(Optimizer, MasterSharesMemoryWithWeightsOfTheSameDtype) {
  FlatBuffers flat(flat_parameters({make_parameter("w", {2000}, {})}, {}), {DType::F32},
                   at::kCPU);
  const Optimizer optimizer(flat, {});
  EXPECT_EQ(optimizer.states()[0].master.data_ptr(),
            flat.buckets()[0].weights.data_ptr());
  EXPECT_EQ(optimizer.bytes(), 2 * 4 * flat.buckets()[0].num_elements);
}

}  // namespace
}  // namespace longhaul::optim
