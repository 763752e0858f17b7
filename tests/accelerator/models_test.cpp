#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "longhaul/device/device.h"
#include "longhaul/models/model.h"
#include "longhaul/tensor/device_limits.h"
#include "tests/accelerator/loaded.h"
#include "tests/dist/tiny_batch.h"
#include "tests/dist/tiny_models.h"
#include "tests/support/router_terms.h"

// Compares forward and backward of every family on the device with those on the CPU.

namespace longhaul::softdev_test {
namespace {

constexpr int64_t kRows = 2;
constexpr int64_t kSeq = 24;

/// Returns the two words of each number of a sequence, the lower one first.
at::Tensor words_of(const at::Tensor& numbers) {
  return at::stack({numbers.bitwise_and(0xFFFFFFFF), numbers.bitwise_right_shift(32)}, -1)
      .to(at::kInt);
}

nn::Batch on_device(nn::Batch batch, at::Device device) {
  if (!tensor::limits_of(device).wide_types) {
    for (at::Tensor& t : batch.targets) t = t.to(at::kInt);
    for (at::Tensor* t : {&batch.sequences, &batch.sequence_of}) {
      if (t->defined()) *t = words_of(*t);
    }
  }
  for (at::Tensor* t :
       {&batch.tokens, &batch.positions, &batch.sequences, &batch.sequence_of,
        &batch.index, &batch.segments, &batch.document_end}) {
    if (t->defined()) *t = t->to(device);
  }
  for (at::Tensor& t : batch.targets) t = t.to(device);
  return batch;
}

/// Returns the loss and then each weight's gradient.
std::vector<at::Tensor> run_family(const ModelConfig& config, at::Device device,
                                   bool fused) {
  const auto model = models::build(config);
  at::manual_seed(11);
  for (const tensor::ParameterPtr& p : model->parameters()) {
    p->set_frozen(false);
    p->bind((at::randn(p->slice().extent) * 0.1).to(device),
            at::zeros(p->slice().extent, device));
  }
  model->prepare(kSeq, device);
  nn::ForwardContext context;
  nn::Batch batch = testing::tiny_batch(config.description, kRows, kSeq, kSeq);
  // Tokens differ: with equal tokens attention has no gradient but rounding.
  batch.tokens = at::arange(kRows * kSeq, at::kInt).mul_(7).remainder_(101);
  context.batch = on_device(batch, device);
  if (config.description.drops) context.dropout_key = 1;
  nn::Losses losses(std::vector<double>(model->num_losses(), 48.0));
  context.losses = &losses;
  context.router = testing::router_of(config.description);
  context.fused = fused;
  context.weight_gradients = std::make_shared<ops::WeightGradients>();
  const device::BackwardHere here;
  const at::Tensor loss = model->loss(model->hidden({}, context), context);
  torch::autograd::backward({loss}, {at::ones({}, device)});
  std::vector<at::Tensor> results{loss.detach().cpu()};
  for (const tensor::ParameterPtr& p : model->parameters())
    results.push_back(p->grad().cpu());
  return results;
}

double norm_of_all(const std::vector<at::Tensor>& all) {
  double squares = 0.0;
  for (const at::Tensor& t : all) {
    squares += t.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(squares);
}

/// Expects that loss and gradients of every family on the device are those of the CPU's
/// composite forms.
void expect_families(bool fused) {
  const at::Device there = device();
  for (const auto& [family, tied] : testing::tiny_models()) {
    const ModelConfig config = testing::tiny_model(family, tied);
    const bool mixture = families::has_experts(config.network);
    if (mixture && !tensor::limits_of(there).any_shapes) continue;  // refused
    const auto expected = run_family(config, at::kCPU, false);
    const auto found = run_family(config, there, fused);
    ASSERT_EQ(found.size(), expected.size());
    const double whole = norm_of_all(expected);
    for (size_t i = 0; i < expected.size(); ++i) {
      // Some parameters, as a bias of keys, have no gradient but rounding.
      const double off = (found[i] - expected[i]).norm().item<double>();
      const double size = expected[i].norm().item<double>();
      EXPECT_LE(off, 1e-5 * size + 1e-6 * whole)
          << family << (tied ? " tied" : "") << ", result " << i;
    }
  }
}

TEST(Families, HaveTheLossesAndGradientsOfTheCpu) { expect_families(false); }

TEST(Families, InFusedFormsHaveTheLossesAndGradientsOfTheCpu) { expect_families(true); }

}  // namespace
}  // namespace longhaul::softdev_test
