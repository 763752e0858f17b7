#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "longhaul/families/decoder.h"
#include "longhaul/families/differences.h"
#include "longhaul/families/model_config.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

ModelConfig parse_mixtral(const OrderedJson& changes = {},
                          const std::string& removed = "") {
  OrderedJson json = OrderedJson::parse(
      read_text(source_dir() / "tests/fixtures/configs/mixtral-8x7b.json"));
  for (const auto& [key, value] : changes.items()) json[key] = value;
  if (!removed.empty()) json.erase(removed);
  return parse_model_config(json.dump(), "c.json");
}

std::string refused_mixtral(const OrderedJson& changes, const std::string& removed = "") {
  const std::string said =
      message_of<InputError>([&] { parse_mixtral(changes, removed); });
  const std::string file = "[model] c.json: ";
  EXPECT_TRUE(said.starts_with(file)) << said;
  return said.substr(file.size());
}

const families::Experts& mixture(const ModelConfig& config) {
  return *families::experts_of(config.network.blocks.at(0));
}

TEST(Mixtral, ThePublishedModelIsCountedAsTransformersCounts) {
  const ModelConfig config = parse_mixtral();
  const ModelDescription& model = config.description;
  EXPECT_EQ(model.num_parameters(), 46'702'792'704);
  // A token goes to 2 of 8 experts.
  EXPECT_EQ(model.num_active_parameters(), 12'879'925'248);
  EXPECT_EQ(model.flops_per_token(4096).products, 6.0 * 12'748'587'008);
  // Gate, up and down of two experts are apart from attention and router.
  const UnitWork& block = model.units.at(1).work;
  EXPECT_EQ(block.grouped, 2.0 * 3 * 4096 * 14336);
  EXPECT_EQ(block.products, 2.0 * 4096 * 4096 + 2.0 * 4096 * 1024 + 8.0 * 4096);
  EXPECT_EQ(model.units.back().work.grouped, 0.0);
  EXPECT_TRUE(config.ignored_fields.empty());
  EXPECT_EQ(config.network.balance, 0.02);
  EXPECT_FALSE(config.network.asks_for_balance);
  EXPECT_TRUE(parse_mixtral({{"output_router_logits", true}}).network.asks_for_balance);
}

TEST(Mixtral, ItsExpertsHaveTheNamesOfItsFilesAndTheOtherFormOfTransformers5) {
  const ModelConfig config = parse_mixtral();
  EXPECT_TRUE(mixture(config).normalised);
  EXPECT_EQ(mixture(config).top_k, 2);
  const auto& parameters = config.description.units.at(2).parameters;
  const auto find = [&](const std::string& name) -> const ParameterDescription& {
    const auto found = std::ranges::find(parameters, "model.layers.1." + name,
                                         &ParameterDescription::name);
    if (found == parameters.end()) throw std::out_of_range(name);
    return *found;
  };
  EXPECT_EQ(parameters.size(), size_t{2 + 4 + 1 + 8 * 3});
  EXPECT_EQ(find("block_sparse_moe.gate.weight").shape, (std::vector<int64_t>{8, 4096}));
  EXPECT_FALSE(find("block_sparse_moe.gate.weight").expert);
  const ParameterDescription& up = find("block_sparse_moe.experts.3.w3.weight");
  EXPECT_EQ(up.shape, (std::vector<int64_t>{14336, 4096}));
  EXPECT_EQ(up.expert, (ExpertNumber{3, 8}));
  EXPECT_FALSE(up.stored);
  const auto together = up.other_form->whole(up.shape);
  EXPECT_EQ(together.name, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(together.global_shape, (std::vector<int64_t>{8, 2 * 14336, 4096}));
  EXPECT_EQ(up.other_form->row(5), (3 * 2 + 1) * 14336 + 5);
  EXPECT_EQ(find("block_sparse_moe.experts.3.w1.weight").other_form->row(5),
            3 * 2 * 14336 + 5);
  const ParameterDescription& down = find("block_sparse_moe.experts.7.w2.weight");
  EXPECT_EQ(down.shape, (std::vector<int64_t>{4096, 14336}));
  const auto all_down = down.other_form->whole(down.shape);
  EXPECT_EQ(all_down.name, "model.layers.1.mlp.experts.down_proj");
  EXPECT_EQ(all_down.global_shape, (std::vector<int64_t>{8, 4096, 14336}));
  EXPECT_EQ(down.other_form->row(9), 7 * 4096 + 9);
  EXPECT_EQ(config.network.old_endings,
            (std::vector<std::pair<std::string, std::string>>{
                {".mlp.gate.weight", ".block_sparse_moe.gate.weight"}}));
}

TEST(Mixtral, EachLayerIsAskedForItsOwnExperts) {
  families::Network network = parse_mixtral().network;
  EXPECT_EQ(families::most_experts(network), 8);
  network.blocks[0].pop_back();  // leaves the attention
  auto& second = std::get<families::Experts>(network.blocks[1][1].branches[0].core);
  second.router.out = 16;
  second.experts.resize(16, second.experts.front());
  EXPECT_EQ(families::experts_of(network.blocks[0]), nullptr);
  EXPECT_EQ(families::experts_of(network.blocks[1])->router.out, 16);
  EXPECT_EQ(families::experts_of(network.blocks[2])->router.out, 8);
  EXPECT_EQ(families::most_experts(network), 16);
  network.blocks.clear();
  EXPECT_FALSE(families::has_experts(network));
}

TEST(Mixtral, AttentionSeesTheWindowAndWithoutOneAll) {
  EXPECT_EQ(attention_of(parse_mixtral().network.blocks[0])->window, std::nullopt);
  const ModelConfig within = parse_mixtral({{"sliding_window", 4096}});
  EXPECT_EQ(attention_of(within.network.blocks[0])->window, 4096);
}

/// Every version of transformers has the values that are expected here.
TEST(Mixtral, WhatIsAbsentIsWhatTheClassHas) {
  EXPECT_EQ(mixture(parse_mixtral({}, "num_local_experts")).experts.size(), 8U);
  EXPECT_EQ(mixture(parse_mixtral({}, "num_experts_per_tok")).top_k, 2);
  EXPECT_EQ(parse_mixtral({}, "router_aux_loss_coef").network.balance, 0.001);
  EXPECT_FALSE(parse_mixtral({}, "output_router_logits").network.asks_for_balance);
  EXPECT_EQ(parse_mixtral({}, "num_key_value_heads").network.key_heads, 8);
  EXPECT_EQ(
      attention_of(parse_mixtral({{"head_dim", nullptr}}).network.blocks[0])->head_dim,
      128);
  const ModelConfig old =
      parse_mixtral({{"transformers_version", "4.31.0"}}, "rope_theta");
  EXPECT_EQ(attention_of(old.network.blocks[0])->rotation->rope.theta, 1e6);
}

TEST(Mixtral, TheNumberOfExpertsHasTwoNames) {
  const ModelConfig other = parse_mixtral({{"num_experts", 4}}, "num_local_experts");
  EXPECT_EQ(mixture(other).experts.size(), 4U);
  EXPECT_EQ(mixture(parse_mixtral({{"num_experts", 8}})).experts.size(), 8U);
  EXPECT_EQ(refused_mixtral({{"num_experts", 4}}),
            "num_experts = 4 disagrees with num_local_experts = 8; keep one of them");
}

TEST(Mixtral, RefusesWhatIsNotBuiltOrHasNoMeaning) {
  EXPECT_EQ(refused_mixtral({{"router_jitter_noise", 0.1}}),
            "router_jitter_noise = 0.1 is not available yet; only 0.0 is");
  EXPECT_NO_THROW(parse_mixtral({{"router_jitter_noise", 0.0}}));
  EXPECT_EQ(
      refused_mixtral({}, "sliding_window"),
      "sliding_window is missing, and no default is safe (transformers 4.36.0 takes "
      "4096, later versions none); add it, or set model.override.sliding_window");
  EXPECT_EQ(refused_mixtral({{"num_local_experts", 0}}),
            "num_local_experts = 0 must be from 1 to 4194304");
  EXPECT_EQ(refused_mixtral({{"num_experts_per_tok", 0}}),
            "num_experts_per_tok = 0 must be from 1 to 4194304");
  EXPECT_EQ(refused_mixtral({{"num_experts_per_tok", 9}}),
            "num_experts_per_tok = 9 is above num_local_experts = 8: a token goes to "
            "different experts");
  EXPECT_EQ(
      refused_mixtral({{"num_local_experts", 1}}, "num_experts_per_tok"),
      "num_experts_per_tok is absent and stands for 2, as in transformers, which is "
      "above num_local_experts = 1: a token goes to different experts");
  EXPECT_EQ(refused_mixtral({{"num_local_experts", 5000}}),
            "num_local_experts = 5000 in each of num_hidden_layers = 32 layers; at most "
            "131072 experts are available");
  EXPECT_EQ(refused_mixtral({{"router_aux_loss_coef", -0.5}}),
            "router_aux_loss_coef = -0.5 must be at least 0");
  for (const char* key : {"num_local_experts", "num_key_value_heads",
                          "router_aux_loss_coef", "output_router_logits"}) {
    EXPECT_EQ(refused_mixtral({{key, nullptr}}),
              fmt::format("{0} is null, which transformers refuses; give it a value, or "
                          "set model.override.{0}",
                          key));
  }
  EXPECT_EQ(refused_mixtral({{"hidden_act", "gelu"}}),
            "hidden_act \"gelu\" is not available; supported: \"silu\"");
  EXPECT_EQ(refused_mixtral({{"n_routed_experts", 8}}),
            "n_routed_experts = 8 changes the mathematics and is not available");
}

TEST(Mixtral, TheBalanceIsOfTrainingAndTheNumberOfExpertsOfATokenIsNot) {
  const auto differences = [](const OrderedJson& changes) {
    return differing_fields(parse_mixtral(), parse_mixtral(changes));
  };
  for (const auto& [field, value] :
       std::vector<std::pair<const char*, OrderedJson>>{{"output_router_logits", true},
                                                        {"router_aux_loss_coef", 0.5},
                                                        {"num_experts_per_tok", 3}}) {
    const auto found = differences({{field, value}});
    ASSERT_EQ(found.size(), 1U) << field;
    EXPECT_EQ(found[0].field, field);
    EXPECT_EQ(found[0].of_result, found[0].field == "num_experts_per_tok");
  }
}

using Words = std::vector<std::string>;

Words warned_of(const ModelConfig& model, const Words& sets) {
  return settings_without_effect(accepted("", sets).config, model);
}

TEST(Mixtral, SettingsOfExpertsWithoutEffectAreTold) {
  const std::string weight = "experts.balance_weight=0.02";
  const Words of_run = warned_of(parse_mixtral(), {weight});
  ASSERT_EQ(of_run.size(), 1U);
  EXPECT_NE(of_run[0].find("experts.balance_weight has no effect: experts.balance is "
                           "\"model\""),
            std::string::npos)
      << of_run[0];
  EXPECT_TRUE(warned_of(parse_mixtral(), {weight, "experts.balance=\"global\""}).empty());
  ModelConfig dense = parse_model_config(
      read_text(source_dir() / "tests/fixtures/configs/llama3-8b.json"), "c.json");
  const Words of_dense = warned_of(dense, {weight, "experts.z_loss=0.001"});
  ASSERT_EQ(of_dense.size(), 2U);
  EXPECT_NE(of_dense[0].find("the model has no experts"), std::string::npos);
  EXPECT_TRUE(warned_of(dense, {}).empty());
}

TEST(Mixtral, AWeightOfABalanceThatTheModelDoesNotAskForIsTold) {
  EXPECT_EQ(
      warned_of(parse_mixtral(), {"experts.z_loss=0.001"}),
      Words{"c.json: router_aux_loss_coef = 0.02 has no effect, and no loss balances "
            "the experts: config.json does not ask for it (output_router_logits); "
            "set experts.balance = \"sequence\", or \"off\" if that is meant"});
  for (const std::string balance : {"off", "sequence"}) {
    const Words sets = {"experts.balance=\"" + balance + "\""};
    EXPECT_TRUE(warned_of(parse_mixtral(), sets).empty());
  }
  EXPECT_TRUE(warned_of(parse_mixtral({{"output_router_logits", true}}), {}).empty());
  EXPECT_TRUE(warned_of(parse_mixtral({{"router_aux_loss_coef", 0.0}}), {}).empty());
  EXPECT_TRUE(warned_of(parse_mixtral({}, "router_aux_loss_coef"), {}).empty());
}

TEST(Mixtral, ALimitThatNoUseOfExpertsCanFallBelowIsToldUnlessItIsTheDefault) {
  const auto said = [](int experts, const std::string& limit) {
    Words sets = {"experts.balance=\"off\""};
    if (!limit.empty()) sets.push_back("experts.warn_below=" + limit);
    const Words warnings =
        warned_of(parse_mixtral({{"num_local_experts", experts}}), sets);
    return warnings.empty() ? "" : warnings.at(0);
  };
  const std::string four = said(4, "0.4");
  EXPECT_NE(
      four.find("experts.warn_below = 0.4 can never warn: each token goes to 2 of 4 "
                "experts, so at least 0.5 of them are in use; set it above 0.5, or 0"),
      std::string::npos)
      << four;
  EXPECT_NE(said(8, "0.25"), "");
  EXPECT_NE(said(2, "0.4").find("so at least 1 of them are in use; set it to 0"),
            std::string::npos);
  EXPECT_EQ(said(8, "0.4") + said(4, "0.51") + said(4, "0") + said(2, ""), "");
}

}  // namespace
}  // namespace longhaul
