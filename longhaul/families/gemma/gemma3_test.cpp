#include "longhaul/families/decoder.h"

#include "tests/support/settings.h"

namespace longhaul {
namespace {

// The published config.json of gemma-3-1b-pt.
constexpr std::string_view kGemma3 = R"({
  "architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "attn_logit_softcapping": null, "bos_token_id": 2,
  "cache_implementation": "hybrid", "eos_token_id": 1, "final_logit_softcapping": null,
  "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
  "initializer_range": 0.02, "intermediate_size": 6912,
  "max_position_embeddings": 32768, "model_type": "gemma3_text",
  "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
  "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
  "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000,
  "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
  "transformers_version": "4.50.0.dev0", "use_cache": true, "vocab_size": 262144
})";

ModelConfig parse_gemma3(const OrderedJson& changes = {}) {
  OrderedJson json = OrderedJson::parse(kGemma3);
  for (const auto& [key, value] : changes.items()) json[key] = value;
  return parse_model_config(json.dump(), "c.json");
}

const families::Attention& attention_of(const ModelConfig& model, size_t layer) {
  return std::get<families::Attention>(
      model.network.blocks.at(layer).front().branches.front().core);
}

/// The numbers of parameters come from transformers 5.23.
TEST(Gemma3, ThePublishedModelIsCountedAsTransformersCounts) {
  const ModelConfig model = parse_gemma3();
  EXPECT_EQ(model.description.num_parameters(), 999'885'952);
  EXPECT_EQ(model.ignored_fields, (std::vector<std::string>{"cache_implementation"}));
  EXPECT_TRUE(model.description.tied);
}

TEST(Gemma3, FiveOfSixLayersHaveAWindowAndARotationOfTheirOwn) {
  const ModelConfig model = parse_gemma3();
  for (const size_t layer : {0, 4, 5, 6, 11, 25}) {
    const families::Attention& attention = attention_of(model, layer);
    const bool full = layer % 6 == 5;
    EXPECT_EQ(attention.window.has_value(), !full) << layer;
    EXPECT_EQ(attention.rotation->rope.theta, full ? 1e6 : 1e4) << layer;
    EXPECT_EQ(model.description.units.at(layer + 1).work.window == 512, !full);
  }
  const OrderedJson kinds = {
      {"sliding_window_pattern", nullptr},
      {"rope_theta", nullptr},
      {"rope_local_base_freq", nullptr},
      {"rope_parameters",
       {{"full_attention",
         {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 2e6}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 3e4}}}}}};
  const ModelConfig now = parse_gemma3(kinds);
  EXPECT_EQ(attention_of(now, 5).rotation->rope.theta, 2e6);
  EXPECT_EQ(attention_of(now, 5).rotation->rope.factor, 8.0);
  EXPECT_EQ(attention_of(now, 4).rotation->rope.theta, 3e4);
}

TEST(Gemma3, NormsAddOneToTheirWeightWhichIsZeroAtFirst) {
  const ModelDescription model = parse_gemma3().description;
  for (const ParameterDescription& p : model.units.at(1).parameters) {
    if (p.name.find("norm") == std::string::npos) continue;
    EXPECT_EQ(p.init.kind, Init::Kind::Zeros) << p.name;
  }
}

TEST(Gemma3, WhatIsNotComputedIsRefusedByName) {
  const auto refused = [](const OrderedJson& changes) {
    return message_of<InputError>([&] { parse_gemma3(changes); });
  };
  EXPECT_NE(refused({{"attn_logit_softcapping", 50.0}}).find("attn_logit_softcapping"),
            std::string::npos);
  EXPECT_NE(refused({{"use_bidirectional_attention", true}})
                .find("use_bidirectional_attention"),
            std::string::npos);
  EXPECT_EQ(
      refused({{"model_type", "gemma3"}, {"vision_config", {{"a", 1}}}}),
      "[model] c.json: vision_config is that of a model of images and text, which is "
      "not available; `longhaul docs importing#the-text-model-of-gemma-3` has the lines "
      "that write its text model alone");
  EXPECT_EQ(refused({{"rope_parameters", {{"rope_type", "default"}}}}),
            "[model] c.json: rope_parameters has \"rope_type\", where this family has an "
            "object for each kind of layer: \"full_attention\", \"sliding_attention\"");
}

}  // namespace
}  // namespace longhaul
