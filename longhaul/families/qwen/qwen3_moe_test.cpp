#include <algorithm>

#include "longhaul/families/decoder.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

ModelConfig parse_qwen_moe(const OrderedJson& changes = {},
                           const std::string& removed = "",
                           const std::string& file = "qwen3-30b-a3b") {
  OrderedJson json = OrderedJson::parse(
      read_text(source_dir() / "tests/fixtures/configs" / (file + ".json")));
  for (const auto& [key, value] : changes.items()) json[key] = value;
  if (!removed.empty()) json.erase(removed);
  return parse_model_config(json.dump(), "c.json");
}

std::string refused_qwen_moe(const OrderedJson& changes,
                             const std::string& removed = "") {
  const std::string said =
      message_of<InputError>([&] { parse_qwen_moe(changes, removed); });
  const std::string file = "[model] c.json: ";
  EXPECT_TRUE(said.starts_with(file)) << said;
  return said.substr(file.size());
}

const families::Experts& experts_in(const ModelConfig& config) {
  return *families::experts_of(config.network.blocks.at(0));
}

/// Returns for each layer whether it has experts, as a text of 1 and 0.
std::string layers_with_experts(const OrderedJson& changes) {
  OrderedJson six = {{"num_hidden_layers", 6}};
  for (const auto& [key, value] : changes.items()) six[key] = value;
  std::string text;
  for (const families::Block& block : parse_qwen_moe(six).network.blocks) {
    text += families::experts_of(block) != nullptr ? '1' : '0';
  }
  return text;
}

TEST(Qwen3Moe, PublishedModelsAreCountedAsTransformersCounts) {
  const ModelConfig small = parse_qwen_moe();
  EXPECT_EQ(small.description.num_parameters(), 30'532'122'624);
  EXPECT_EQ(small.description.num_active_parameters(), 3'353'032'704);
  EXPECT_EQ(small.description.flops_per_token(4096).products, 6.0 * 3'041'656'832);
  EXPECT_TRUE(small.ignored_fields.empty());
  const ModelConfig large = parse_qwen_moe({}, "", "qwen3-235b-a22b");
  EXPECT_EQ(large.description.num_parameters(), 235'093'634'560);
  EXPECT_EQ(large.description.num_active_parameters(), 22'190'763'520);
  EXPECT_EQ(large.description.flops_per_token(4096).products, 6.0 * 21'567'635'456);
}

TEST(Qwen3Moe, ItsExpertsAndItsNormsOfHeadsHaveTheNamesOfItsFiles) {
  const ModelConfig config = parse_qwen_moe({{"num_hidden_layers", 2}});
  const auto& parameters = config.description.units.at(2).parameters;
  const auto shape = [&](const std::string& name) {
    const auto found = std::ranges::find(parameters, "model.layers.1." + name,
                                         &ParameterDescription::name);
    return found == parameters.end() ? std::vector<int64_t>{} : found->shape;
  };
  EXPECT_EQ(parameters.size(), size_t{2 + 6 + 1 + 128 * 3});
  EXPECT_EQ(shape("self_attn.q_norm.weight"), std::vector<int64_t>{128});
  EXPECT_EQ(shape("mlp.gate.weight"), (std::vector<int64_t>{128, 2048}));
  EXPECT_EQ(shape("mlp.experts.127.gate_proj.weight"), (std::vector<int64_t>{768, 2048}));
  EXPECT_EQ(shape("mlp.experts.127.up_proj.weight"), (std::vector<int64_t>{768, 2048}));
  EXPECT_EQ(shape("mlp.experts.0.down_proj.weight"), (std::vector<int64_t>{2048, 768}));
  const auto last =
      std::ranges::find(parameters, "model.layers.1.mlp.experts.127.up_proj.weight",
                        &ParameterDescription::name);
  EXPECT_EQ(last->other_form->name, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(last->other_form->row(767), 128 * 2 * 768 - 1);
  EXPECT_TRUE(config.network.old_endings.empty());
}

TEST(Qwen3Moe, SomeLayersHaveAPlainFeedForwardOfTheirOwnWidth) {
  EXPECT_EQ(layers_with_experts({}), "111111");
  EXPECT_EQ(layers_with_experts({{"mlp_only_layers", nullptr}}), "111111");
  EXPECT_EQ(layers_with_experts({{"decoder_sparse_step", 2}}), "010101");
  EXPECT_EQ(layers_with_experts({{"mlp_only_layers", {0, 4}}}), "011101");
  EXPECT_EQ(
      layers_with_experts({{"mlp_only_layers", {1, 99}}, {"decoder_sparse_step", 2}}),
      "000101");
  EXPECT_EQ(layers_with_experts({{"decoder_sparse_step", 7}}), "000000");
  const ModelConfig config =
      parse_qwen_moe({{"num_hidden_layers", 2}, {"mlp_only_layers", {1}}});
  const auto& parameters = config.description.units.at(2).parameters;
  const auto up = std::ranges::find(parameters, "model.layers.1.mlp.up_proj.weight",
                                    &ParameterDescription::name);
  ASSERT_NE(up, parameters.end());
  EXPECT_EQ(up->shape, (std::vector<int64_t>{6144, 2048}));
}

/// Every version of transformers has the values that are expected here.
TEST(Qwen3Moe, WhatIsAbsentIsWhatTheClassHas) {
  EXPECT_EQ(experts_in(parse_qwen_moe({}, "num_experts")).experts.size(), 128U);
  EXPECT_EQ(experts_in(parse_qwen_moe({}, "num_experts_per_tok")).top_k, 8);
  EXPECT_TRUE(experts_in(parse_qwen_moe()).normalised);
  EXPECT_FALSE(experts_in(parse_qwen_moe({}, "norm_topk_prob")).normalised);
  EXPECT_EQ(parse_qwen_moe({}, "router_aux_loss_coef").network.balance, 0.001);
  EXPECT_EQ(parse_qwen_moe({}, "num_key_value_heads").network.key_heads, 4);
  EXPECT_EQ(attention_of(parse_qwen_moe({}, "head_dim").network.blocks[0])->head_dim, 64);
  EXPECT_NO_THROW(parse_qwen_moe({}, "decoder_sparse_step"));
  EXPECT_NO_THROW(parse_qwen_moe({}, "mlp_only_layers"));
}

TEST(Qwen3Moe, TheNumberOfExpertsHasAnotherNameInFilesOfTransformers5) {
  const ModelConfig config =
      parse_qwen_moe({{"num_local_experts", 16},
                      {"rope_parameters", {{"rope_type", "default"}}},
                      {"dtype", "bfloat16"}},
                     "num_experts");
  EXPECT_EQ(experts_in(config).experts.size(), 16U);
}

TEST(Qwen3Moe, AttentionHasBiasesWhereTheFileSaysSo) {
  const ModelConfig config = parse_qwen_moe({{"attention_bias", true}});
  const families::Attention& attention = *attention_of(config.network.blocks[0]);
  EXPECT_TRUE(attention.query.bias && attention.out.bias && attention.query_norm);
  EXPECT_FALSE(attention_of(parse_qwen_moe().network.blocks[0])->key.bias);
}

TEST(Qwen3Moe, RefusesWhatIsNotBuiltOrHasNoMeaning) {
  EXPECT_EQ(refused_qwen_moe({{"use_sliding_window", true}}),
            "use_sliding_window = true is not available yet");
  EXPECT_EQ(refused_qwen_moe({{"num_experts", 0}}),
            "num_experts = 0 must be from 1 to 4194304");
  EXPECT_EQ(refused_qwen_moe({{"num_experts_per_tok", 129}}),
            "num_experts_per_tok = 129 is above num_experts = 128: a token goes to "
            "different experts");
  EXPECT_EQ(refused_qwen_moe({{"num_local_experts", 64}}),
            "num_experts = 128 disagrees with num_local_experts = 64; keep one of them");
  EXPECT_EQ(refused_qwen_moe({{"decoder_sparse_step", 0}}),
            "decoder_sparse_step = 0 must be from 1 to 2147483648");
  EXPECT_EQ(refused_qwen_moe({}, "moe_intermediate_size"),
            "moe_intermediate_size is missing");
  EXPECT_EQ(refused_qwen_moe({{"mlp_only_layers", {0, "1"}}}),
            "mlp_only_layers expected a list of numbers of layers, found [0,\"1\"]");
  EXPECT_EQ(refused_qwen_moe({{"head_dim", nullptr}}),
            "head_dim is null, which transformers refuses; give it a value, or set "
            "model.override.head_dim");
  EXPECT_EQ(refused_qwen_moe({{"num_key_value_heads", nullptr}}),
            "num_key_value_heads is null, which transformers refuses; give it a value, "
            "or set model.override.num_key_value_heads");
  EXPECT_EQ(refused_qwen_moe({{"n_shared_experts", 1}, {"n_routed_experts", 8}}),
            "n_routed_experts = 8 changes the mathematics and is not available");
}

}  // namespace
}  // namespace longhaul
