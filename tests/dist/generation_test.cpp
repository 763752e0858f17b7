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

}  // namespace
}  // namespace longhaul
