// Tests a step on a device that is not a CPU. Nothing of forward, loss and backward waits
// for the device, and the numbers are those of the CPU.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "longhaul/models/model.h"
#include "longhaul/nn/auxiliary_loss.h"
#include "longhaul/ops/embedding.h"
#include "longhaul/ops/loss_head.h"
#include "longhaul/session/batch.h"
#include "tests/dist/tiny_models.h"
#include "tests/support/checked_device.h"
#include "tests/support/router_terms.h"

namespace longhaul {
namespace {

using testing::kDevice, testing::make_device, testing::waits;

constexpr int64_t kRows = 3;
constexpr int64_t kSeq = 20;
const std::vector<std::string> kNone;

/// Returns a batch with two documents in each sequence, and a third of the tokens as
/// targets. A model that is not causal gets one document in each sequence.
data::TokenBatch batch_for(const ModelDescription& model) {
  data::TokenBatch batch;
  batch.resize(kRows, kSeq);
  batch.targets.clear();
  for (const LossTerm& term : model.losses) {
    if (term.over == LossTerm::Over::Positions) continue;
    batch.targets.emplace_back(term.of_sequences ? kRows : kRows * kSeq, 1);
  }
  for (int64_t i = 0; i < kRows * kSeq; ++i) {
    const auto place = static_cast<size_t>(i);
    const auto at = static_cast<int32_t>(i % kSeq);
    batch.tokens[place] = static_cast<int32_t>(i * 7 % 100);
    batch.positions[place] = at;
    batch.targets[0][place] = i % 3 == 0 ? static_cast<int32_t>(i * 5 % 100) : -100;
    batch.document_start[place] = at < 8 ? 0 : 8;
    if (model.drops) batch.index.push_back(at);
  }
  if (model.drops) batch.sequences = {4, 5, 6};
  if (model.is_causal()) return batch;
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    batch.segments.push_back(i % 20 < 10 ? 0 : 1);
    batch.document_start[i] = 0;
    batch.document_end.push_back(17);
  }
  return batch;
}

struct StepResult {
  std::vector<double> sums;
  std::vector<at::Tensor> gradients;
  std::vector<std::string> waits;  ///< until the losses are read
};

StepResult one_step(const ModelConfig& config, at::Device device) {
  at::manual_seed(7);
  const auto model = models::build(config);
  for (const tensor::ParameterPtr& p : model->parameters()) {
    p->set_frozen(false);
    const at::Tensor values = at::randn(p->slice().extent).mul_(0.2);
    p->bind(values.to(device),
            at::zeros(p->slice().extent, at::TensorOptions(at::kFloat).device(device)));
  }
  model->prepare(kSeq, device);
  data::TokenBatch batch = batch_for(config.description);
  waits.take();
  nn::ForwardContext context;
  context.batch = session::batch_of(batch, 0, kRows, device);
  nn::Losses losses(std::vector<double>(model->num_losses(), 0.01));
  context.losses = &losses;
  context.router = testing::router_of(config.description);
  context.weight_gradients = std::make_shared<ops::WeightGradients>();
  if (config.description.drops) {
    context.dropout_key = 3;
    context.batch.sequence_of = context.batch.sequences.repeat_interleave(kSeq);
  }
  const at::Tensor loss = model->loss(model->hidden({}, context), context);
  torch::autograd::backward({loss}, {at::ones({}, at::TensorOptions(device))});
  const at::Tensor on_device = losses.sums_on(device);
  StepResult result;
  result.waits = waits.take();
  EXPECT_EQ(on_device.device(), device);
  result.sums = losses.sums();
  for (size_t i = 0; i < result.sums.size(); ++i) {
    EXPECT_EQ(on_device.cpu()[static_cast<int64_t>(i)].item<double>(), result.sums[i]);
  }
  for (const tensor::ParameterPtr& p : model->parameters()) {
    result.gradients.push_back(p->grad().cpu());
  }
  return result;
}

/// Returns the waits that a pass needs on a device without a kernel for all experts at
/// once. There each product and each gradient of experts reads the experts' offsets.
std::vector<std::string> waits_for_offsets(const ModelConfig& config) {
  constexpr int kReadsOfLayer = 6;
  std::vector<std::string> reads;
  for (const families::Block& block : config.network.blocks) {
    for (int i = 0; families::experts_of(block) != nullptr && i < kReadsOfLayer; ++i) {
      reads.insert(reads.end(), {"a blocking copy", "a copy of pageable memory"});
    }
  }
  return reads;
}

TEST(DevicePath, NoPassOfAnyFamilyWaitsForTheDeviceButForTheOffsetsOfExperts) {
  make_device();
  for (const auto& [family, tied] : testing::tiny_models()) {
    const ModelConfig config = testing::tiny_model(family, tied);
    const StepResult there = one_step(config, kDevice);
    EXPECT_EQ(there.waits, waits_for_offsets(config)) << family;
    const StepResult here = one_step(config, at::kCPU);
    ASSERT_EQ(there.sums.size(), here.sums.size());
    for (size_t i = 0; i < here.sums.size(); ++i) {
      EXPECT_NEAR(there.sums[i], here.sums[i], 1e-5 * here.sums[i]) << family;
      EXPECT_GT(here.sums[i], 0.0) << family;
    }
    ASSERT_EQ(there.gradients.size(), here.gradients.size());
    for (size_t i = 0; i < here.gradients.size(); ++i) {
      const double size = here.gradients[i].norm().item<double>();
      const double error = (there.gradients[i] - here.gradients[i]).norm().item<double>();
      EXPECT_LE(error, 1e-5 * size + 1e-9) << family << " parameter " << i;
    }
  }
}

TEST(DevicePath, ABatchCrossesInOneCopyOfPinnedMemoryAndIsTheSame) {
  make_device();
  const ModelConfig config = testing::tiny_model("bert", true);
  data::TokenBatch batch = batch_for(config.description);
  const int64_t pinned = testing::pinned_bytes;
  const int64_t copies = testing::copies_to_device;
  const nn::Batch there = session::batch_of(batch, 1, 2, kDevice);
  EXPECT_EQ(testing::copies_to_device - copies, 1);
  EXPECT_EQ(testing::pinned_bytes, pinned);  // the pinned memory is not kept
  EXPECT_EQ(waits.take(), kNone);
  const nn::Batch here = session::batch_of(batch, 1, 2, at::kCPU);
  const auto same = [](const at::Tensor& a, const at::Tensor& b) {
    return a.defined() == b.defined() &&
           (!a.defined() || (a.dtype() == b.dtype() && at::equal(a.cpu(), b)));
  };
  EXPECT_TRUE(same(there.tokens, here.tokens));
  EXPECT_TRUE(same(there.positions, here.positions));
  EXPECT_TRUE(same(there.segments, here.segments));
  EXPECT_TRUE(same(there.document_start, here.document_start));
  EXPECT_TRUE(same(there.document_end, here.document_end));
  EXPECT_TRUE(same(there.sequences, here.sequences));
  EXPECT_TRUE(same(there.index, here.index));
  ASSERT_EQ(there.targets.size(), here.targets.size());
  for (size_t i = 0; i < here.targets.size(); ++i) {
    EXPECT_TRUE(same(there.targets[i], here.targets[i])) << i;
  }
  EXPECT_TRUE(same(there.target_rows, at::nonzero(here.targets[0].ge(0)).squeeze(1)));
  EXPECT_EQ(there.target_rows.numel(), 13);
}

TEST(DevicePath, TheHostTellsWhereDocumentsBeginWhereTheyAreWholeRuns) {
  make_device();
  data::TokenBatch causal = batch_for(testing::tiny_model("llama").description);
  const auto bounds = [](data::TokenBatch& batch) {
    const nn::Batch there = session::batch_of(batch, 1, 2, kDevice);
    const at::Tensor& found = there.documents.bounds;
    return found.defined() ? found.cpu() : at::Tensor();
  };
  EXPECT_TRUE(at::equal(bounds(causal), at::tensor({0, 8, 20, 28, 40}, at::kInt)));
  EXPECT_EQ(session::batch_of(causal, 1, 2, kDevice).documents.longest, 12);
  data::TokenBatch padded = batch_for(testing::tiny_model("bert").description);
  EXPECT_FALSE(bounds(padded).defined());  // padding sees the text before it
  padded.document_end.assign(padded.document_end.size(), kSeq);
  EXPECT_TRUE(at::equal(bounds(padded), at::tensor({0, 20, 40}, at::kInt)));
  causal.document_start[kSeq + 9] = 3;
  EXPECT_FALSE(bounds(causal).defined());
}

/// Returns loss, its sum, and gradients of a head whose logits are taken in chunks.
std::vector<at::Tensor> head_results(at::Device device, int64_t rows, int64_t vocabulary,
                                     bool split) {
  at::manual_seed(4);
  const at::Tensor values = at::randn({vocabulary, 4});
  const at::Tensor h = at::randn({rows, 4}).to(device).requires_grad_(true);
  const at::Tensor targets = at::arange(rows).mul(7).remainder(vocabulary);
  targets.narrow(0, 3, 5).fill_(-100);
  const auto weight = tensor::make_parameter("w", values.sizes().vec(), {});
  weight->set_frozen(false);
  weight->bind(values.to(device), at::zeros(values.sizes()).to(device));
  ops::LossHeadOptions options;
  options.scale = 0.01;
  options.z_loss = 1e-3;
  options.device_logits_bytes = int64_t{4} * 90 * 4 * 101;
  int combined = 0;
  if (split) options.combine = [&](at::Tensor&, at::Tensor&) { ++combined; };
  if (vocabulary > 1000) options.device_logits_bytes = int64_t{1} << 30;
  const at::Tensor on_device = targets.to(device);
  waits.take();
  const ops::LossHeadResult result = ops::loss_head(h, weight, on_device, options);
  torch::autograd::backward({result.loss}, {});
  EXPECT_EQ(waits.take(), kNone);
  if (split && !device.is_cpu() && vocabulary < 1000) {
    EXPECT_EQ(combined, 2);
  }
  return {result.loss.detach().cpu(), result.cross_entropy_sum.cpu(), h.grad().cpu(),
          weight->grad().cpu()};
}

TEST(DevicePath, ChunksAndPiecesOfTheHeadAddUpToTheCpusResult) {
  make_device();
  struct Size {
    int64_t rows, vocabulary;
  };
  // Two chunks of rows on the device, one on the CPU; two on the CPU and one on the
  // device, of which a part at a time is in fp32.
  for (const auto& [rows, vocabulary] : {Size{700, 101}, Size{600, 40000}}) {
    for (const bool split : {false, true}) {
      const auto there = head_results(kDevice, rows, vocabulary, split);
      const auto here = head_results(at::kCPU, rows, vocabulary, split);
      for (size_t i = 0; i < here.size(); ++i) {
        const double size = here[i].norm().item<double>();
        EXPECT_LE((there[i] - here[i]).norm().item<double>(), 2e-5 * size)
            << i;  // sums of 40000
        EXPECT_GT(size, 0.0);
      }
    }
  }
}

TEST(DevicePath, APartOfAVocabularyTakesItsRowsGradientsAndNoOthers) {
  make_device();
  auto table = tensor::make_parameter("w", {12, 4}, {});
  format::TensorSlice part = table->slice();
  part.offset[0] = 6;
  part.extent[0] = 6;
  table->set_slice(part);
  table->set_frozen(false);
  const at::Tensor ids = at::tensor({1, 6, 11, 6, 0, 7}, at::kInt);
  const at::Tensor values = at::randn({6, 4});
  at::Tensor dy = at::randn({6, 4});
  dy[0].fill_(std::numeric_limits<float>::infinity());  // another part's
  const auto gradient = [&](at::Device device) {
    table->bind(values.to(device), at::zeros({6, 4}).to(device));
    const at::Tensor on_device = ids.to(device), of_result = dy.to(device);
    waits.take();
    torch::autograd::backward({ops::embedding(on_device, table)}, {of_result});
    EXPECT_EQ(waits.take(), kNone);
    return table->grad().cpu();
  };
  EXPECT_TRUE(at::equal(gradient(kDevice), gradient(at::kCPU)));
}

TEST(DevicePath, AnAuxiliaryTermIsAddedWhereItLies) {
  make_device();
  nn::Losses losses({1.0, 0.5});
  nn::ForwardContext context;
  context.losses = &losses;
  const at::Tensor x = at::randn({4, 3}).to(kDevice).requires_grad_(true);
  waits.take();
  nn::with_auxiliary_loss(x, x.sum() * 0.0F + 2.5F, 1, context);
  losses.again = true;
  nn::with_auxiliary_loss(x, x.sum(), 1, context);
  EXPECT_EQ(waits.take(), kNone);
  EXPECT_EQ(losses.sums(), (std::vector<double>{0.0, 2.5}));
}

}  // namespace
}  // namespace longhaul
