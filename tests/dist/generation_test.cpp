// Generating with a cache of keys and values is the full forward, in every family.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/tensor/flat_pieces.h"
#include "longhaul/tensor/init.h"
#include "tests/dist/tiny_models.h"
#include "tests/support/whole_model.h"

namespace longhaul {
namespace {

/// Gives all parameters random weights, large enough for the tokens to differ.
void bind_random(const models::Model& model) {
  for (const tensor::ParameterPtr& p : model.parameters()) {
    at::Tensor values = at::empty(p->slice().extent, at::kFloat);
    const bool norm = p->name().find("norm") != std::string::npos;
    tensor::initial_values(p->slice(),
                           {norm ? Init::Kind::Ones : Init::Kind::Normal, 0.3}, 5, 0,
                           values.numel(), values.data_ptr<float>());
    p->set_frozen(true);
    p->bind(values, at::Tensor());
  }
}

TEST(Generation, WithACacheIsTheArgmaxOfTheFullForwardInEveryFamily) {
  const at::NoGradGuard no_grad;
  for (const auto& [family, tied] : testing::tiny_models()) {
    for (const bool fused : {true, false}) {
      SCOPED_TRACE(family + (tied ? " tied" : "") + (fused ? "" : " composite"));
      const auto model = models::build(testing::tiny_model(family, tied));
      bind_random(*model);
      model->prepare(64, at::kCPU);
      std::vector<int64_t> ids = {3, 14, 15, 9, 2, 6};
      infer::SamplingOptions options;
      options.max_new_tokens = 30;  // past the window of Mistral
      const auto run = [&] {
        return infer::generate(infer::testing::next_id_of(*model, options, 64, fused),
                               ids, options, [](int64_t) { return true; });
      };
      if (!testing::tiny_model(family, tied).description.is_causal()) {
        EXPECT_THROW(run(), InputError);
        continue;
      }
      const auto fresh = run();
      ASSERT_EQ(fresh.size(), 30U);
      for (const int64_t id : fresh) {
        nn::ForwardContext context;
        const auto length = static_cast<int64_t>(ids.size());
        context.batch.rows = 1;
        context.batch.seq = length;
        context.batch.tokens = at::tensor(ids, at::kInt);
        context.batch.positions = at::arange(length, at::kInt);
        const at::Tensor logits = model->logits(model->hidden({}, context)[0]);
        ASSERT_EQ(logits[-1].argmax().item<int64_t>(), id) << ids.size();
        ids.push_back(id);
      }
    }
  }
}

/// Continues rows of different lengths together, greedily, for `steps` tokens: the
/// shorter rows have padding in front.
std::vector<std::vector<int64_t>> continued_together(
    const models::Model& model, const std::vector<std::vector<int64_t>>& prompts,
    int64_t steps, bool fused) {
  const auto rows = static_cast<int64_t>(prompts.size());
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  nn::KvCache cache = model.make_cache(rows, static_cast<int64_t>(longest) + steps,
                                       at::TensorOptions(at::kFloat));
  std::vector<std::vector<int64_t>> fresh(prompts.size());
  std::vector<std::vector<int64_t>> input = prompts;
  while (std::ssize(fresh[0]) < steps) {
    const int64_t width = cache.length == 0 ? static_cast<int64_t>(longest) : 1;
    nn::ForwardContext context;
    context.fused = fused;
    context.cache = &cache;
    context.batch.rows = rows;
    context.batch.seq = width;
    context.batch.tokens = at::zeros({rows * width}, at::kInt);
    context.batch.positions = at::zeros({rows * width}, at::kInt);
    context.batch.document_start = at::zeros({rows, width}, at::kInt);
    for (int64_t r = 0; r < rows; ++r) {
      const auto& ids = input[static_cast<size_t>(r)];
      const auto count = static_cast<int64_t>(ids.size());
      const auto first =
          static_cast<int64_t>(longest - prompts[static_cast<size_t>(r)].size());
      const int64_t end = cache.length + width;
      context.batch.document_start[r].fill_(first);
      context.batch.tokens.narrow(0, (r + 1) * width - count, count)
          .copy_(at::tensor(ids, at::kInt));
      context.batch.positions.narrow(0, (r + 1) * width - count, count)
          .copy_(at::arange(end - first - count, end - first, at::kInt));
    }
    const at::Tensor hidden = model.hidden({}, context)[0].view({rows, width, -1});
    cache.length += width;
    const at::Tensor ids =
        model.logits(hidden.select(1, width - 1).contiguous()).argmax(1);
    for (int64_t r = 0; r < rows; ++r) {
      input[static_cast<size_t>(r)] = {ids[r].item<int64_t>()};
      fresh[static_cast<size_t>(r)].push_back(ids[r].item<int64_t>());
    }
  }
  return fresh;
}

TEST(Generation, OfRowsWithPaddingInFrontIsThatOfEachRowAloneInEveryFamily) {
  const at::NoGradGuard no_grad;
  const std::vector<std::vector<int64_t>> prompts = {
      {3, 14, 15, 9, 2, 6, 5, 35, 8}, {7}, {97, 9, 3, 2, 3}};
  for (const auto& [family, tied] : testing::tiny_models()) {
    const ModelConfig config = testing::tiny_model(family, tied);
    if (!config.description.is_causal()) continue;
    const auto model = models::build(config);
    bind_random(*model);
    model->prepare(64, at::kCPU);
    for (const bool fused : {true, false}) {
      SCOPED_TRACE(family + (tied ? " tied" : "") + (fused ? "" : " composite"));
      const auto together = continued_together(*model, prompts, 20, fused);
      for (size_t i = 0; i < prompts.size(); ++i) {
        infer::SamplingOptions options;
        options.max_new_tokens = 20;
        EXPECT_EQ(together[i],
                  infer::generate(infer::testing::next_id_of(*model, options, 64, fused),
                                  prompts[i], options, [](int64_t) { return true; }));
      }
    }
  }
}

}  // namespace
}  // namespace longhaul
