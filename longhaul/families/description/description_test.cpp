#include "longhaul/families/description/description.h"

#include <functional>

#include "longhaul/families/decoder.h"
#include "longhaul/families/layers/unit_maker.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

ModelDescription published(const std::string& name) {
  return load_model_config(source_dir() / "tests/fixtures/configs" / name).description;
}

DecoderSettings small() {
  DecoderSettings s;
  s.hidden_size = 8;
  s.intermediate_size = 12;
  s.num_hidden_layers = 3;
  s.num_attention_heads = 4;
  s.num_key_value_heads = 2;
  s.head_dim = 2;
  s.rms_norm_eps = 1e-5;
  return s;
}

TEST(Description, CountsTheParametersOfPublishedModels) {
  EXPECT_EQ(published("llama3-8b.json").num_parameters(), 8'030'261'248);
  EXPECT_EQ(published("llama3-70b.json").num_parameters(), 70'553'706'496);
  // The head's matrix is the embedding's table, so that it is not counted either.
  const ModelDescription tied = published("llama32-1b.json");
  EXPECT_EQ(tied.num_parameters(), 1'235'814'400);
  EXPECT_EQ(tied.num_parameters_without_embedding(), 1'235'814'400 - 128256LL * 2048);
  EXPECT_EQ(published("llama3-8b.json").num_parameters_without_embedding(),
            8'030'261'248 - 128256LL * 4096);
}

TEST(Description, TellsTheParametersThatATokenUsesWhereTheyAreFewer) {
  EXPECT_EQ(published("llama3-8b.json").num_active_parameters(), 8'030'261'248);
  EXPECT_EQ(published("llama3-8b.json").parameters_text(), "8,030,261,248 parameters");
  EXPECT_EQ(published("qwen3-30b-a3b.json").parameters_text(),
            "30,532,122,624 parameters, 3,353,032,704 of them active for a token");
}

TEST(Description, FlopsAgreeWithPublishedFiguresOfLlama3) {
  // torchtitan counts full attention, NeMo causal attention.
  const FlopsPerToken small = published("llama3-8b.json").flops_per_token(8192);
  EXPECT_NEAR(small.full, 57.9e9, 0.05e9);
  EXPECT_NEAR(small.causal, 51.5e9, 0.05e9);
  const FlopsPerToken large = published("llama3-70b.json").flops_per_token(8192);
  EXPECT_NEAR(large.full, 481.4e9, 0.05e9);
  EXPECT_NEAR(large.causal, 449.2e9, 0.05e9);
}

TEST(Description, StagesShareNothingButATiedEmbedding) {
  DecoderSettings settings = small();
  const auto count = [](const std::vector<UnitDescription>& units) {
    int64_t sum = 0;
    for (const UnitDescription& unit : units) sum += unit.num_parameters();
    return sum;
  };
  for (const bool tied : {false, true}) {
    settings.tie_word_embeddings = tied;
    const ModelDescription model = make_llama(settings, 20, 64).description;
    const auto first = model.stage({0, 1, true, false});
    const auto last = model.stage({1, 3, false, true});
    EXPECT_EQ(first.size(), 2U);
    EXPECT_EQ(last.size(), 3U);
    EXPECT_EQ(last[0].layer, 1);
    EXPECT_EQ(count(first) + count(last), model.num_parameters() + (tied ? 160 : 0));
    EXPECT_EQ(last.back().parameters.back().name,
              tied ? "model.embed_tokens.weight" : "lm_head.weight");
    EXPECT_EQ(count(model.stage(model.whole())), model.num_parameters());
    EXPECT_EQ(model.spare_names().size(), tied ? 1U : 0U);
  }
}

TEST(Description, AStagesCostIsItsProductsAndHalfOfTheAttention) {
  const ModelDescription model = make_llama(small(), 20, 64).description;
  EXPECT_EQ(forward_cost(model.units[0], 64), 8.0);
  // The matrices of a layer have 64 elements each (query, output), 32 each (key, value)
  // and 96 each (the three of the feed-forward). A token sees 32 positions on average,
  // with products of 8 features each for the scores and for the values.
  EXPECT_EQ(forward_cost(model.units[1], 64), 2 * 64 + 2 * 32 + 3 * 96 + 2 * 8 * 32);
  EXPECT_EQ(forward_cost(model.units.back(), 64), 160.0);
}

TEST(Description, AttentionWithinAWindowIsCountedByWhatItSees) {
  ModelDescription model = make_llama(small(), 20, 64).description;
  const FlopsPerToken whole = model.flops_per_token(64);
  const double before = forward_cost(model.units[1], 64);
  for (UnitDescription& unit : model.units) unit.work.window = 16;
  // The first 16 of the 64 tokens see 8 positions on average, and the others see 16. All
  // tokens see 14 on average instead of 32.
  EXPECT_EQ(forward_cost(model.units[1], 64), before - 2 * 8 * (32 - 14));
  EXPECT_EQ(model.flops_per_token(64).full, whole.full - 6.0 * 3 * 2 * 8 * (64 - 16));
  EXPECT_EQ(model.flops_per_token(64).causal, whole.causal - 6.0 * 3 * 2 * 8 * (32 - 14));
  EXPECT_EQ(model.flops_per_token(16).full,
            make_llama(small(), 20, 64).description.flops_per_token(16).full);
  for (UnitDescription& unit : model.units) unit.work.window = 1 << 20;
  EXPECT_EQ(model.flops_per_token(64).causal, whole.causal);
}

TEST(Description, TheWeightOfANormIsOneAtFirstAndZeroWhereOneIsAdded) {
  families::UnitMaker unit(UnitKind::Block, 0, 0.02);
  const families::Feature x = unit.input(8);
  unit.norm("a", x);
  unit.head_norm("b", x, 4, RmsForm::WeightBeforeCast);
  unit.norm("c", x, RmsForm::OnePlusWeight);
  unit.head_norm("d", x, 4, RmsForm::OnePlusWeight);
  std::vector<Init::Kind> kinds;
  for (const auto& p : unit.take().parameters) {
    kinds.push_back(p.init.kind);
    EXPECT_FALSE(p.decays);
  }
  EXPECT_EQ(kinds, (std::vector{Init::Kind::Ones, Init::Kind::Ones, Init::Kind::Zeros,
                                Init::Kind::Zeros}));
}

TEST(Description, OneThatContradictsItselfIsRefused) {
  const ModelDescription good = make_llama(small(), 20, 64).description;
  EXPECT_NO_THROW(check_description(good));
  const auto refused = [&](const std::function<void(ModelDescription&)>& change) {
    ModelDescription model = good;
    change(model);
    try {
      check_description(model);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  using Change = std::function<void(ModelDescription&)>;
  const std::vector<std::pair<Change, std::string>> changes = {
      {[](auto& m) { m.units[2].parameters[0].name = ""; }, "has no name"},
      {[](auto& m) { m.units[2].parameters[0].name = m.units[1].parameters[0].name; },
       "stands twice"},
      {[](auto& m) { std::swap(m.units[1], m.units[2]); }, "is block 1"},
      {[](auto& m) { m.units.pop_back(); }, "out of order"},
      {[](auto& m) { m.units[1].work = {}; }, "has no work"},
      {[](auto& m) { m.units[1].parameters[1].split->dim = 2; }, "has no dim 2"},
      {[](auto& m) { m.units[1].parameters[1].split->heads.key = 3; }, "and 3 key heads"},
      {[](auto& m) { m.units[1].parameters[1].shape = {8, 0}; }, "has shape [8, 0]"},
      {[](auto& m) { m.units[1].forward.tensors.clear(); }, "says nothing of what it"},
      {[](auto& m) { m.units[1].forward.tensors[0].kind = KeptKind::Norms; },
       "does not begin with its input"},
      {[](auto& m) { m.units[1].forward.tensors[3].width = 0; }, "tensor of width 0"},
      {[](auto& m) { m.units[1].forward.enters = m.units[1].forward.leaves = 0; },
       "neither enters nor leaves"},
      {[](auto& m) { m.units[1].work.window = 0; }, "sees 0 positions"},
      {[](auto& m) { m.units[1].forward.kept_positions.clear(); },
       "with 0 tensors of positions"},
      {[](auto& m) { m.units.back().forward.logits = 0; }, "has logits of width 0"},
      {[](auto& m) { m.tied = TiedHead{"wte", "head"}; }, "wte is no parameter"},
      {[](auto& m) { m.passed.clear(); }, "nothing is handed on"},
      {[](auto& m) { m.passed.push_back({"hidden", 8}); }, "'hidden' of width 8"},
      {[](auto& m) { m.units[2].forward.inputs = 0; }, "nothing of what it is handed"},
      {[](auto& m) { m.losses[0].over = LossTerm::Over::Positions; },
       "there is one at least"},
      {[](auto& m) { m.losses.push_back(m.losses[0]); },
       "'next_token' is a term of the loss twice"},
  };
  for (const auto& [change, part] : changes) {
    EXPECT_NE(refused(change).find(part), std::string::npos) << refused(change);
  }
}

}  // namespace
}  // namespace longhaul
