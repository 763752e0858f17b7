// Compares dropout inside and outside of tp-split layers with that of a single rank.
#include "longhaul/nn/dropout.h"
#include "tests/support/network_forms.h"

#include <ATen/ATen.h>

#include <mutex>

#include "longhaul/base/error.h"
#include "longhaul/nn/attention.h"
#include "longhaul/parallel/tensor/region.h"
#include "longhaul/tensor/init.h"
#include "tests/support/apply_ranks.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/parameters.h"

namespace longhaul::parallel {
namespace {

constexpr int64_t kRows = 2, kLength = 12, kFeatures = 32, kLayer = 3;
constexpr double kProbability = 0.25;

/// An attention that drops probabilities, and dropout of its result.
struct DroppingLayer {
  DroppingLayer(int ranks, int rank, bool sequence) {
    const std::vector<tensor::ParameterPtr> all = parameters.units().front().parameters;
    apply_shard_plan(all, {ranks, sequence}, rank);
    for (const tensor::ParameterPtr& p : all) {
      at::Tensor values = at::empty(p->slice().extent, at::kFloat);
      tensor::initial_values(p->slice(), {Init::Kind::Normal, 0.2}, 1, 0, values.numel(),
                             values.data_ptr<float>());
      p->set_frozen(false);
      p->bind(values, at::zeros_like(values));
    }
    context.batch.rows = kRows;
    context.batch.seq = kLength;
    context.batch.document_end = at::full({kRows, kLength}, kLength - 1, at::kInt);
    context.batch.sequences = at::tensor({40L, 41L}, at::kLong);
    context.batch.sequence_of =
        context.batch.sequences.repeat_interleave(context.batch.seq);
    context.batch.index = at::arange(kLength, at::kInt).repeat({kRows});
    context.weight_gradients = std::make_shared<ops::WeightGradients>();
    context.dropout_key = 17;
  }
  at::Tensor forward(const at::Tensor& x) const {
    return nn::dropout(attention.forward(x, context), kProbability, kLayer,
                       nn::DropoutSite::AttentionOut, context);
  }
  static UnitDescription describe() {
    using Unit = format::ShardUnit;
    constexpr format::Heads kHeads = {4, 2};
    UnitDescription unit;
    unit.parameters = {
        {"a.q_proj.weight", {32, kFeatures}, {}, {{Unit::QueryHeads, 0, kHeads}}},
        {"a.k_proj.weight", {16, kFeatures}, {}, {{Unit::KeyHeads, 0, kHeads}}},
        {"a.v_proj.weight", {16, kFeatures}, {}, {{Unit::KeyHeads, 0, kHeads}}},
        {"a.o_proj.weight", {kFeatures, 32}, {}, {{Unit::QueryHeads, 1, kHeads}}}};
    return unit;
  }
  static families::Attention form() {
    families::Attention out = nn::testing::attention_form("a", 8);
    out.dropout = kProbability;
    return out;
  }
  tensor::ParameterSet parameters{{describe()}};
  nn::Attention attention{parameters, form(), kLayer};
  nn::ForwardContext context;
};

struct LayerResult {
  at::Tensor y, dx;
};

LayerResult run_layer(const DroppingLayer& layer, const at::Tensor& x,
                      const at::Tensor& dy) {
  const at::Tensor in = ops::leaf(x);
  const at::Tensor y = layer.forward(in);
  ops::backward(y, dy);
  return {y.detach(), in.grad()};
}

TEST(LayerDropout, DropsTheSameElementsOnAnyNumberOfRanks) {
  at::manual_seed(9);
  const at::Tensor x = at::randn({kRows * kLength, kFeatures});
  const at::Tensor dy = at::randn({kRows * kLength, kFeatures});
  const DroppingLayer whole(1, 0, false);
  const LayerResult want = run_layer(whole, x, dy);
  const at::Tensor dropped = want.y == 0.0;
  EXPECT_NEAR(dropped.to(at::kDouble).mean().item<double>(), kProbability, 0.08);
  std::mutex mutex;
  for (const int ranks : {2, 4}) {
    for (const bool sequence : {false, true}) {
      SCOPED_TRACE(fmt::format("{} ranks, sequence {}", ranks, sequence));
      comm::run_fake_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
        DroppingLayer layer(ranks, world->rank(), sequence);
        const TensorRegion region(*world, sequence);
        layer.context.region = &region;
        const LayerResult got = run_layer(layer, region.outside(x), region.outside(dy));
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(at::equal(got.y == 0.0, region.outside(dropped)));
        ops::expect_close(got.y, region.outside(want.y), 1e-5, "y");
        ops::expect_close(got.dx, region.outside(want.dx), 1e-5, "dx");
      });
    }
  }
}

TEST(LayerDropout, DropsTheSameElementsWhenAttentionRunsAgain) {
  at::manual_seed(9);
  const at::Tensor x = at::randn({kRows * kLength, kFeatures});
  const at::Tensor dy = at::randn({kRows * kLength, kFeatures});
  DroppingLayer layer(1, 0, false);
  const LayerResult want = run_layer(layer, x, dy);
  layer.context.selective_recompute = true;
  const LayerResult got = run_layer(layer, x, dy);
  EXPECT_TRUE(at::equal(got.y, want.y));
  EXPECT_TRUE(at::equal(got.dx, want.dx));
}

TEST(LayerDropout, DropsOtherElementsAtOtherPlacesAndNoneInEvaluation) {
  DroppingLayer layer(1, 0, false);
  const at::Tensor x = at::ones({kRows * kLength, kFeatures});
  const auto at_place = [&](int64_t number, nn::DropoutSite site) {
    return nn::dropout(x, kProbability, number, site, layer.context);
  };
  const at::Tensor here = at_place(0, nn::DropoutSite::Embedding);
  EXPECT_TRUE(at::equal(here, at_place(0, nn::DropoutSite::Embedding)));
  EXPECT_FALSE(at::equal(here, at_place(1, nn::DropoutSite::Embedding)));
  EXPECT_FALSE(at::equal(here, at_place(0, nn::DropoutSite::FeedForward)));
  layer.context.dropout_key = 18;
  EXPECT_FALSE(at::equal(here, at_place(0, nn::DropoutSite::Embedding)));
  const at::NoGradGuard no_grad;
  const at::Tensor trained = layer.attention.forward(x, layer.context);
  layer.context.dropout_key.reset();
  EXPECT_TRUE(at_place(0, nn::DropoutSite::Embedding).is_same(x));
  const at::Tensor y = layer.attention.forward(x, layer.context);
  EXPECT_GT((y - trained).norm().item<double>(), 0.1 * y.norm().item<double>());
  // All rows are alike, so that without dropout the result does not depend on a query's
  // place.
  EXPECT_TRUE(at::allclose(y, y[0].expand_as(y), 1e-5, 1e-6));
}

TEST(LayerDropout, RefusesABatchWithoutNumbersOfItsSequences) {
  DroppingLayer layer(1, 0, false);
  const at::Tensor x = ops::leaf(at::ones({kRows * kLength, kFeatures}));
  const auto message = [&] {
    try {
      layer.forward(x);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  layer.context.batch.index.reset();
  EXPECT_NE(message().find("no index of each token"), std::string::npos) << message();
  layer.context.batch.sequences.reset();
  EXPECT_NE(message().find("no numbers of the batch's 2 sequences"), std::string::npos)
      << message();
}

}  // namespace
}  // namespace longhaul::parallel
