// The whole Llama under tensor and sequence parallelism against its twin on one rank.
// Here since models and parallel do not see each other.
#include "longhaul/families/decoder.h"
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

twin::Model llama(bool tied, int64_t head_dim = 8) {
  const ModelConfig config = small(tied, head_dim);
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

TEST(TensorParallelLlama, MatchesTheTwinOnOneRank) {
  twin::check_against_twin(llama(false));
}

TEST(TensorParallelLlama, MatchesTheTwinWithTiedEmbeddings) {
  twin::check_against_twin(llama(true));
}

TEST(TensorParallelLlama, MatchesTheTwinUpToOneQueryHeadPerRank) {
  // Five ranks: a key head on three of them, the other on two.
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
  const format::ShardPlan plan = format::make_shard_plan(6, 2, 2, true);
  for (const tensor::ParameterPtr& p : models::build(config)->parameters()) {
    const format::ParameterShard shard =
        format::plan_parameter(plan, {p->slice(), p->split()}, 1);
    EXPECT_EQ(shard.slice.is_whole(), p->slice().extent.size() == 1) << p->name();
  }
}

TEST(TensorParallelLlama, TheCacheHasTheKeyHeadsOfItsRank) {
  const ModelConfig config = small(false);
  const auto model = models::build(config);
  apply_shard_plan(model->parameters(), format::make_shard_plan(6, 2, 2, false), 1);
  twin::bind_values(model->parameters(), at::kFloat);
  EXPECT_EQ(model->make_cache(1, 4, at::kFloat).layers.at(0).keys.size(2), 1);
}

}  // namespace
}  // namespace longhaul::parallel
