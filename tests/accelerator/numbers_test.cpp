#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <ostream>

#include "tests/accelerator/loaded.h"

// Compares operations on the device with those of the CPU.

namespace longhaul::softdev_test {
namespace {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors&)>;

struct Operation {
  std::string name;
  Function run;
};

std::ostream& operator<<(std::ostream& out, const Operation& operation) {
  return out << operation.name;
}

Tensors inputs(at::ScalarType type) {
  at::manual_seed(3);
  return {at::randn({6, 8}).to(type), at::randn({6, 8}).to(type),
          at::randn({8, 5}).to(type), at::randint(0, 6, {4}, at::kLong)};
}

std::vector<Operation> operations() {
  return {
      {"linear",
       [](const Tensors& x) { return at::linear(x[0], x[2].t().contiguous()); }},
      {"addmm",
       [](const Tensors& x) { return at::addmm(x[0].matmul(x[2]), x[1], x[2]); }},
      {"silu", [](const Tensors& x) { return at::silu(x[0]) * x[1]; }},
      {"gelu", [](const Tensors& x) { return at::gelu(x[0]); }},
      {"softmax", [](const Tensors& x) { return at::softmax(x[0], -1, at::kFloat); }},
      {"log_softmax", [](const Tensors& x) { return at::log_softmax(x[0], -1); }},
      {"embedding", [](const Tensors& x) { return at::embedding(x[0], x[3]); }},
      {"index_select", [](const Tensors& x) { return at::index_select(x[0], 0, x[3]); }},
      {"index", [](const Tensors& x) { return x[0].index({x[3]}); }},
      {"index_add",
       [](const Tensors& x) {
         return at::zeros_like(x[0]).index_add_(0, x[3], x[1].narrow(0, 0, 4));
       }},
      {"rms_norm",
       [](const Tensors& x) {
         const at::Tensor v = x[0].to(at::kFloat);
         return v * at::rsqrt(v.pow(2).mean(-1, true) + 1e-5);
       }},
      {"layer_norm",
       [](const Tensors& x) { return at::layer_norm(x[0], {8}, {}, {}, 1e-5); }},
      {"views",
       [](const Tensors& x) {
         return x[0].view({3, 2, 8}).transpose(0, 1).narrow(2, 1, 4).reshape({-1, 4}) +
                x[1].select(0, 1).slice(0, 2, 6).unsqueeze(0).expand({6, 4});
       }},
      {"in place",
       [](const Tensors& x) {
         at::Tensor y = x[0].clone();
         y.narrow(0, 2, 3).mul_(2).add_(x[1].narrow(0, 0, 3));
         return y.masked_fill_(y.gt(1), -1);
       }},
      {"cat", [](const Tensors& x) { return at::cat({x[0], x[1].narrow(0, 1, 2)}, 0); }},
      {"stack and where",
       [](const Tensors& x) {
         return at::stack({at::where(x[0].gt(0), x[0], x[1]), x[1]}).sum({0, 1});
       }},
      {"gather",
       [](const Tensors& x) {
         return at::gather(x[0].narrow(0, 0, 4), 1, x[3].view({4, 1}));
       }},
      {"cross entropy",
       [](const Tensors& x) {
         return at::cross_entropy_loss(x[0].narrow(0, 0, 4).to(at::kFloat), x[3]);
       }},
      {"resized output",
       [](const Tensors& x) {
         at::Tensor out = at::empty({0}, x[0].options());
         return at::mm_out(out, x[0], x[2]);
       }},
      {"sort", [](const Tensors& x) { return std::get<0>(at::sort(x[0], 1)); }},
      {"nonzero", [](const Tensors& x) { return at::nonzero(x[0].gt(0)); }},
      {"argmax", [](const Tensors& x) { return at::argmax(x[0], 1); }},
      {"arange",
       [](const Tensors& x) {
         return at::arange(3, 9, x[0].options().dtype(at::kLong)).view({6, 1}) * x[0];
       }},
      {"dtype", [](const Tensors& x) { return x[0].to(at::kDouble).to(at::kBFloat16); }},
  };
}

using Case = std::tuple<Operation, at::ScalarType>;
class Numbers : public testing::TestWithParam<Case> {};

TEST_P(Numbers, AreThoseOfTheCpu) {
  const auto& [operation, type] = GetParam();
  const Tensors x = inputs(type);
  Tensors there;
  for (const at::Tensor& each : x) there.push_back(each.to(device()));
  const at::Tensor expected = operation.run(x);
  const at::Tensor found = operation.run(there);
  EXPECT_EQ(found.device(), device());
  EXPECT_EQ(found.strides(), expected.strides());
  ASSERT_EQ(found.sizes(), expected.sizes());
  ASSERT_EQ(found.scalar_type(), expected.scalar_type());
  // Some operations are composed of others on the device, which round in between.
  const double tolerance = type == at::kFloat ? 1e-6 : 8e-3;
  EXPECT_TRUE(at::allclose(found.cpu(), expected, tolerance, tolerance))
      << found.cpu() << expected;
}

INSTANTIATE_TEST_SUITE_P(Operations, Numbers,
                         testing::Combine(testing::ValuesIn(operations()),
                                          testing::Values(at::kFloat, at::kBFloat16)),
                         [](const testing::TestParamInfo<Case>& tested) {
                           std::string name = std::get<0>(tested.param).name;
                           std::ranges::replace(name, ' ', '_');
                           return name + "_" + toString(std::get<1>(tested.param));
                         });

/// Returns loss and gradients of a small network.
Tensors network(const at::Device& on) {
  at::manual_seed(5);
  Tensors weights{at::randn({10, 16}), at::randn({32, 16}), at::randn({10, 32})};
  const at::Tensor ids = at::randint(0, 10, {12}, at::kLong).to(on);
  for (at::Tensor& w : weights) w = w.to(on).requires_grad_();
  const at::Tensor x = at::silu(at::linear(at::embedding(weights[0], ids), weights[1]));
  const at::Tensor loss = at::cross_entropy_loss(at::linear(x, weights[2]), ids);
  loss.backward();
  return {loss.detach(), weights[0].grad(), weights[1].grad(), weights[2].grad()};
}

TEST(Backward, GivesTheGradientsOfTheCpu) {
  const at::Device there = device(1);  // before the first backward of the process
  const Tensors expected = network(at::kCPU);
  const Tensors found = network(there);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::allclose(found[i].cpu(), expected[i], 1e-6, 1e-6)) << i;
  }
}

TEST(Memory, FreshMemoryHoldsNoZeros) {
  const at::Tensor x = at::empty({4}, at::TensorOptions(device()).dtype(at::kFloat));
  EXPECT_TRUE(at::isnan(x).all().item<bool>());
}

TEST(Memory, IsCached) {
  const auto make = [] { return at::full({1000}, 2.0, device()); };
  for (int i = 0; i < 2; ++i) EXPECT_EQ(make().sum().item<float>(), 2000.0F);
  const int64_t before = counted("device_allocations");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(make().sum().item<float>(), 2000.0F);
  EXPECT_EQ(counted("device_allocations"), before);
}

TEST(Memory, PinnedMemoryIsKnown) {
  device();
  const at::Tensor x = at::empty({4}, at::TensorOptions().pinned_memory(true));
  EXPECT_TRUE(x.is_pinned());
  EXPECT_FALSE(at::empty({4}).is_pinned());
  EXPECT_TRUE(at::ones({4}).pin_memory().is_pinned());
  const int64_t before = counted("synchronizations");
  const at::Tensor there = at::ones({4}).pin_memory().to(device(), /*non_blocking=*/true);
  EXPECT_EQ(counted("synchronizations"), before);
  EXPECT_TRUE(at::equal(there.cpu(), at::ones({4})));
}

}  // namespace
}  // namespace longhaul::softdev_test
