#include "longhaul/families/decoder.h"

#include "tests/support/settings.h"

namespace longhaul {
namespace {

// The fields of the published config.json of Qwen2.5 0.5B whose values the published
// models do not share.
constexpr std::string_view kQwen25 = R"({
  "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
  "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
  "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
  "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
  "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
  "use_sliding_window": false, "vocab_size": 151936
})";
constexpr std::string_view kQwen3 = R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 12288,
  "max_position_embeddings": 40960, "max_window_layers": 36, "num_attention_heads": 32,
  "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
  "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
  "vocab_size": 151936
})";

ModelConfig parse(std::string_view text, const OrderedJson& changes = {}) {
  OrderedJson json = OrderedJson::parse(text);
  for (const auto& [key, value] : changes.items()) json[key] = value;
  return parse_model_config(json.dump(), "c.json");
}

std::string refused(std::string_view text, const OrderedJson& changes) {
  return message_of<InputError>([&] { parse(text, changes); });
}

const ParameterDescription& find(const ModelConfig& config, const std::string& name) {
  for (const ParameterDescription& p : config.description.units.at(1).parameters) {
    if (p.name == name) return p;
  }
  throw std::out_of_range(name);
}

/// The numbers of parameters come from transformers 5.23.
TEST(Qwen, PublishedModelsAreCountedAsTransformersCounts) {
  EXPECT_EQ(parse(kQwen25).description.num_parameters(), 494'032'768);
  EXPECT_EQ(parse(kQwen25, {{"hidden_size", 3584},
                            {"intermediate_size", 18944},
                            {"num_hidden_layers", 28},
                            {"num_attention_heads", 28},
                            {"num_key_value_heads", 4},
                            {"tie_word_embeddings", false},
                            {"vocab_size", 152064}})
                .description.num_parameters(),
            7'615'616'512);
  EXPECT_EQ(parse(kQwen3).description.num_parameters(), 8'190'735'360);
  EXPECT_EQ(parse(kQwen25).ignored_fields, std::vector<std::string>{"use_mrope"});
}

TEST(Qwen, BiasesSplitWithTheirHeadsAndNormsOfHeadsAreOnEveryRank) {
  const ModelConfig two = parse(kQwen25);
  const ParameterDescription& bias = find(two, "model.layers.0.self_attn.k_proj.bias");
  EXPECT_EQ(bias.shape, std::vector<int64_t>{128});
  EXPECT_EQ(bias.init.kind, Init::Kind::Zeros);
  EXPECT_EQ(bias.split->unit, format::ShardUnit::KeyHeads);
  const ModelConfig three = parse(kQwen3);
  const ParameterDescription& norm =
      find(three, "model.layers.0.self_attn.q_norm.weight");
  EXPECT_EQ(norm.shape, std::vector<int64_t>{128});
  EXPECT_EQ(norm.split->unit, format::ShardUnit::None);
  EXPECT_THROW(find(three, "model.layers.0.self_attn.k_proj.bias"), std::out_of_range);
}

TEST(Qwen, WhatIsNotBuiltIsRefused) {
  EXPECT_EQ(refused(kQwen25, {{"use_sliding_window", true}}),
            "[model] c.json: use_sliding_window = true is not available yet");
  EXPECT_EQ(refused(kQwen3, {{"attention_bias", true}}),
            "[model] c.json: attention_bias = true is not available yet: this program's "
            "Qwen3 has no biases");
  EXPECT_EQ(
      refused(kQwen3, {{"layer_types", {"sliding_attention"}}}),
      "[model] c.json: layer_types \"sliding_attention\" is not available yet; only "
      "\"full_attention\" is");
  EXPECT_EQ(
      refused(kQwen3, {{"num_experts", 128}}),
      "[model] c.json: num_experts = 128 changes the mathematics and is not available");
}

/// In every version of transformers an absent num_key_value_heads is 32, and an absent
/// head_dim is 128.
TEST(Qwen, WhatIsAbsentIsWhatTheClassHasAndNullIsAnother) {
  const auto without = [](std::string_view text, const std::string& key,
                          const OrderedJson& changes = {}) {
    OrderedJson json = OrderedJson::parse(text);
    for (const auto& [name, value] : changes.items()) json[name] = value;
    json.erase(key);
    return parse_model_config(json.dump(), "c.json");
  };
  const OrderedJson wide = {{"num_attention_heads", 64}};
  EXPECT_EQ(without(kQwen3, "num_key_value_heads", wide).network.key_heads, 32);
  const OrderedJson no_keys = {{"num_key_value_heads", nullptr}};
  EXPECT_EQ(parse(kQwen25, no_keys).network.key_heads, 14);
  EXPECT_EQ(message_of<InputError>([&] { without(kQwen25, "num_key_value_heads"); }),
            "[model] c.json: num_key_value_heads is absent and stands for 32, as in "
            "transformers, which does not divide num_attention_heads = 14");
  const OrderedJson narrow = {{"hidden_size", 2048}};
  EXPECT_EQ(attention_of(without(kQwen3, "head_dim", narrow).network.blocks[0])->head_dim,
            128);
  EXPECT_EQ(refused(kQwen3, {{"head_dim", nullptr}}),
            "[model] c.json: head_dim is null, which transformers refuses; give it a "
            "value, or set model.override.head_dim");
  EXPECT_EQ(attention_of(parse(kQwen25).network.blocks[0])->head_dim, 64);
}

}  // namespace
}  // namespace longhaul
