#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "longhaul/device/device.h"
#include "longhaul/nn/loss_head.h"
#include "longhaul/session/batch.h"
#include "longhaul/tensor/device_limits.h"
#include "tests/accelerator/loaded.h"
#include "tests/support/parameters.h"

// The tests run where the device has no 64-bit numbers (SOFTDEV_NARROW=1).

namespace longhaul::softdev_test {
namespace {

class NarrowDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tensor::limits_of(there).wide_types) GTEST_SKIP() << "SOFTDEV_NARROW is not set";
  }
  at::Device there = device();
};

data::TokenBatch batch_with_targets(int64_t rows, int64_t seq, int64_t masked) {
  data::TokenBatch batch;
  batch.resize(rows, seq);
  for (int64_t i = 0; i < rows * seq; ++i) {
    const auto at = static_cast<size_t>(i);
    batch.tokens[at] = static_cast<int32_t>(i + 5);
    batch.targets[0][at] = i > 0 && i <= masked ? static_cast<int32_t>(i) : -100;
  }
  batch.document_end.assign(static_cast<size_t>(rows * seq), static_cast<int32_t>(seq));
  batch.sequences = {7, (int64_t{1} << 40) + 3};
  batch.index = batch.positions;
  return batch;
}

TEST_F(NarrowDevice, RefusesByNameWhatItCannotDo) {
  const at::Tensor x = at::zeros({4, 4}, there);
  const auto fails = [](const std::string& part, const auto& call) {
    EXPECT_NE(failure_of(call).find("NARROW: " + part), std::string::npos)
        << failure_of(call);
  };
  fails("aten::empty_strided makes a tensor of Long",
        [&] { at::zeros({3}, at::kLong).to(there); });
  fails("aten::empty makes a tensor of Double", [&] { x.sum(at::kDouble); });
  fails("aten::add writes to a part of a tensor", [&] { x.select(0, 1).add_(1.0); });
  fails("aten::copy_ writes to a part of a tensor",
        [&] { x.narrow(1, 0, 2).copy_(x.narrow(1, 2, 2)); });
  fails("the device has no aten::logaddexp", [&] { at::logaddexp(x, x); });
}

TEST_F(NarrowDevice, GetsABatchIn32Bits) {
  data::TokenBatch batch = batch_with_targets(2, 16, 4);
  const nn::Batch rows = session::batch_of(batch, 0, 2, there);
  EXPECT_TRUE(at::equal(rows.tokens.cpu(), at::arange(5, 37, at::kInt)));
  EXPECT_EQ(rows.targets.at(0).scalar_type(), at::kInt);
  EXPECT_EQ(rows.targets.at(0).cpu().slice(0, 0, 6).clamp_min(-1).sum().item<int>(),
            1 + 2 + 3 + 4 - 2);
  EXPECT_TRUE(
      at::equal(rows.sequences.cpu(), at::tensor({7, 0, 3, 256}, at::kInt).view({2, 2})));
  EXPECT_EQ(rows.sequence_of.sizes(), (at::IntArrayRef{32, 2}));
  EXPECT_TRUE(at::equal(rows.sequence_of.cpu()[31], at::tensor({3, 256}, at::kInt)));
}

TEST_F(NarrowDevice, GetsEquallyManyRowsWithATargetInEachBatch) {
  for (const int64_t masked : {0, 2, 5}) {
    data::TokenBatch batch = batch_with_targets(2, 16, masked);
    const nn::Batch rows = session::batch_of(batch, 0, 2, there);
    EXPECT_EQ(rows.target_rows.numel(), 5);  // 20 of 128
    EXPECT_TRUE(rows.document_start.defined());
    const at::Tensor targets =
        at::index_select(rows.targets[0], 0, rows.target_rows).cpu();
    EXPECT_EQ(targets.ge(0).sum().item<int>(), masked);
    EXPECT_TRUE(targets.slice(0, masked).lt(0).all().item<bool>());
  }
}

TEST_F(NarrowDevice, HasTheLossOfPairsOfTheCpu) {
  constexpr int64_t kSeq = 24;
  data::TokenBatch batch;
  batch.resize(1, kSeq);
  batch.sides.assign(kSeq, -1);
  batch.pairs = {{{.number = 0, .reference = {-9.0, -8.0}},
                  {.number = 1, .reference = {-20.0, -17.0}}}};
  for (int64_t i = 0; i < 20; ++i) {
    const auto at = static_cast<size_t>(i);
    batch.sides[at] = static_cast<int32_t>(i / 5);
    batch.targets[0][at] = i % 5 < 2 ? -100 : static_cast<int32_t>(i);
  }
  for (size_t i = 20; i < kSeq; ++i) batch.targets[0][i] = -100;
  at::manual_seed(1);
  const at::Tensor h = at::randn({kSeq, 8}), w = at::randn({53, 8});
  const auto run = [&](at::Device device) {
    nn::ForwardContext context;
    context.batch = session::batch_of(batch, 0, 1, device);
    context.pairs.settings = {.loss = PreferenceLoss::Sigmoid, .beta = 0.3};
    context.pairs.figures = 1;
    nn::Losses losses(std::vector<double>{0.5, 0, 0, 0, 0, 0});
    context.losses = &losses;
    const auto weight = tensor::make_parameter("w", {53, 8}, {});
    weight->set_frozen(false);
    weight->bind(w.to(device), at::zeros({53, 8}, device));
    const at::Tensor hidden = ops::leaf(h.to(device));
    const at::Tensor root = nn::loss_head(hidden, weight, context);
    const device::BackwardHere here;
    torch::autograd::backward({root}, {at::ones({}, device)});
    return std::tuple(losses.sums(), hidden.grad().cpu(), weight->grad().cpu());
  };
  const auto [want, dh, dw] = run(at::kCPU);
  const auto [found, dh_there, dw_there] = run(there);
  ASSERT_EQ(found.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(found[i], want[i], 1e-5 * (1.0 + std::abs(want[i]))) << i;
  }
  EXPECT_GT(want[0], 0.1);
  ops::expect_close(dh_there, dh, 1e-5, "dh");
  ops::expect_close(dw_there, dw, 1e-5, "dw");
}

}  // namespace
}  // namespace longhaul::softdev_test
