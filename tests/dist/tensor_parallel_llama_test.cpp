// Compares the whole Llama under tensor and sequence parallelism with its twin on one
// rank. The test stands in this folder, since models and parallel do not include each
// other.
#include "longhaul/families/decoder.h"
#include "longhaul/families/describe.h"
#include "longhaul/models/model.h"
#include "tests/support/tensor_twins.h"

namespace longhaul::parallel {
namespace {

using twin::Case;

ModelConfig small(bool tied, int64_t head_dim = 8) {
  DecoderSettings s;
  s.hidden_size = 40;
  s.intermediate_size = 49;
  s.num_hidden_layers = 2;
  s.num_attention_heads = 6;
  s.num_key_value_heads = 2;
  s.head_dim = head_dim;
  s.rms_norm_eps = 1e-5;
  s.tie_word_embeddings = tied;
  return make_llama(s, /*vocab_size=*/101, /*max_position_embeddings=*/64);
}

twin::Model model_of(const ModelConfig& config) {
  const auto make = [config] {
    const std::shared_ptr<models::Model> model = models::build(config);
    model->prepare(twin::kSeq, at::kCPU);
    twin::Family family;
    family.owner = model;
    family.parameters = model->parameters();
    family.hidden = [m = model.get()](const nn::ForwardContext& context) {
      return m->hidden({}, context);
    };
    family.loss = [m = model.get()](const nn::Tensors& hidden,
                                    const nn::ForwardContext& context) {
      return m->loss(hidden, context);
    };
    return family;
  };
  return {make};
}

twin::Model llama(bool tied, int64_t head_dim = 8) {
  return model_of(small(tied, head_dim));
}

/// Returns a Llama whose second layer has 4 query heads and 1 key head instead of 6
/// and 2.
ModelConfig with_different_heads() {
  ModelConfig config = small(/*tied=*/false);
  families::Attention& attention = families::layers_of(config.network).at(1).attention;
  attention.query.out = 4 * attention.head_dim;
  attention.key.out = attention.value.out = attention.head_dim;
  config.description = families::describe(config.network);
  check_description(config.description);
  return config;
}

TEST(TensorParallelLlama, MatchesTheTwinOnOneRank) {
  twin::check_against_twin(llama(false));
}

TEST(TensorParallelLlama, MatchesTheTwinWithTiedEmbeddings) {
  twin::check_against_twin(llama(true));
}

TEST(TensorParallelLlama, MatchesTheTwinUpToOneQueryHeadPerRank) {
  // With five ranks, three of them hold one key head and two the other.
  const twin::Result on_one = run(llama(false), Case{});
  for (const int tp : {5, 6}) {
    Case c;
    c.tp = tp;
    c.sequence = tp == 6;
    const twin::Difference d = compare(run(llama(false), c), on_one);
    EXPECT_LE(d.worst, twin::twin_tolerance(c.type)) << describe(c) << ": " << d.name;
  }
}

TEST(TensorParallelLlama, MatchesTheTwinWithMoreRanksThanKeyColumns) {
  const twin::Model narrow = llama(false, /*head_dim=*/2);
  const twin::Result on_one = run(narrow, Case{});
  for (const int tp : {5, 6}) {
    Case c;
    c.tp = tp;
    c.sequence = tp == 6;
    const twin::Difference d = compare(run(narrow, c), on_one);
    EXPECT_LE(d.worst, twin::twin_tolerance(c.type)) << describe(c) << ": " << d.name;
  }
}

/// The key head of the second layer is on both ranks.
TEST(TensorParallelLlama, LayersWithDifferentHeadsMatchTheTwinOnOneRank) {
  const ModelConfig config = with_different_heads();
  const twin::Model model = model_of(config);
  for (const bool sequence : {false, true}) {
    for (const bool fused : {false, true}) {
      Case c;
      c.fused = fused;
      const twin::Result on_one = run(model, c);
      EXPECT_EQ(on_one.grads.at("model.layers.0.self_attn.k_proj.weight").size(0), 16);
      EXPECT_EQ(on_one.grads.at("model.layers.1.self_attn.k_proj.weight").size(0), 8);
      c.tp = 2;
      c.sequence = sequence;
      const twin::Difference d = compare(run(model, c), on_one);
      EXPECT_LE(d.worst, twin::twin_tolerance(c.type)) << describe(c) << ": " << d.name;
      c.fault = twin::Fault::KeySum;
      EXPECT_GT(compare(run(model, c), on_one).worst, 1e-2) << "a planted fault";
    }
  }
}

TEST(TensorParallelLlama, SelectiveRecomputeIsBitwiseTheSame) {
  for (const int tp : {1, 2, 4}) {
    Case c;
    c.tp = tp;
    c.sequence = tp == 4;
    c.type = at::kBFloat16;
    const twin::Result plain = run(llama(false), c);
    c.selective = true;
    expect_same_bits(run(llama(false), c), plain, describe(c));
  }
}

TEST(TensorParallelLlama, EveryMatrixIsCut) {
  const ModelConfig config = small(false);
  const layout::ShardPlan plan = {2, true};
  for (const tensor::ParameterPtr& p : models::build(config)->parameters()) {
    const layout::ParameterShard shard =
        layout::plan_parameter(plan, {p->slice(), p->split()}, 1);
    EXPECT_EQ(shard.slice.is_whole(), p->slice().extent.size() == 1) << p->name();
  }
}

TEST(TensorParallelLlama, TheCacheHasTheKeyHeadsOfItsRank) {
  const ModelConfig config = small(false);
  const auto model = models::build(config);
  apply_shard_plan(model->parameters(), {2, false}, 1);
  twin::bind_values(model->parameters(), at::kFloat);
  EXPECT_EQ(model->make_cache(1, 4, at::kFloat).layers.at(0).at(0).size(2), 1);
}

}  // namespace
}  // namespace longhaul::parallel
