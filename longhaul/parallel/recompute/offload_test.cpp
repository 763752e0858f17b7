// Tests offload_activations on a device that the test makes up, since a CPU has no second
// memory.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <bit>

#include "longhaul/parallel/recompute/recompute.h"
#include "tests/support/checked_device.h"

namespace longhaul::parallel {
namespace {

using testing::device_bytes, testing::kDevice, testing::make_device,
    testing::pinned_bytes;

constexpr int kBlocks = 5;
constexpr int64_t kBytes = 24 * 16 * 4;  // bytes of an activation

struct Outcome {
  at::Tensor y, gradient;
  int64_t device = 0;  ///< bytes that the forward pass left there
  int64_t pinned = 0;
  std::vector<std::string> waits;
};

/// Runs some blocks forward and backward; `offload` gives each block its Offload.
Outcome run_blocks(const at::Tensor& values,
                   const std::function<std::shared_ptr<Offload>()>& offload) {
  const int64_t device_before = device_bytes, pinned_before = pinned_bytes;
  const BlockFunction block = [](const nn::Tensors& x) {
    const at::Tensor inner = at::tanh(x[0]);
    return nn::Tensors{inner * x[0]};
  };
  at::Tensor in = values.to(kDevice).requires_grad_(true);
  at::Tensor y = in;
  testing::waits.take();
  for (int i = 0; i < kBlocks; ++i) y = recompute(block, {y}, offload())[0];
  Outcome outcome;
  outcome.waits = testing::waits.take();
  outcome.device = device_bytes - device_before;
  outcome.pinned = pinned_bytes - pinned_before;
  torch::autograd::backward({y}, {at::ones_like(y)});
  for (std::string& wait : testing::waits.take()) outcome.waits.push_back(wait);
  outcome.y = y.detach().cpu();
  outcome.gradient = in.grad().cpu();
  return outcome;
}

TEST(Offload, InputsThatBlocksKeepLeaveTheDeviceAndComeBackTheSame) {
  make_device();
  const at::Tensor x = at::linspace(-2, 2, 24 * 16).view({24, 16});
  const Outcome stays = run_blocks(x, [] { return nullptr; });
  const Outcome each = run_blocks(x, [] { return std::make_shared<Offload>(); });
  const auto of_all = std::make_shared<Offload>();
  const Outcome leaves = run_blocks(x, [&] { return of_all; });
  EXPECT_EQ(stays.device,
            (1 + kBlocks) * kBytes);  // the input, and the results of the blocks
  EXPECT_EQ(stays.pinned, 0);
  EXPECT_EQ(leaves.device, 2 * kBytes);  // the input, and the result of the last block
  // The device's pinned blocks are powers of two.
  const auto block = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(kBytes)));
  EXPECT_EQ(leaves.pinned, kBlocks * block);
  for (const Outcome* outcome : {&each, &leaves}) {
    EXPECT_TRUE(at::equal(outcome->y, stays.y));
    EXPECT_TRUE(at::equal(outcome->gradient, stays.gradient));
    EXPECT_TRUE(outcome->waits.empty()) << outcome->waits[0];
  }
  EXPECT_EQ(each.device, leaves.device);
  EXPECT_GT(stays.gradient.abs().sum().item<float>(), 0.0F);
  EXPECT_EQ(pinned_bytes, 0);  // nothing is kept behind the backward pass
}

}  // namespace
}  // namespace longhaul::parallel
