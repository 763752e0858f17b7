#include "longhaul/families/decoder.h"
#include "longhaul/families/describe.h"

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
      {"rope_theta", nullptr},
      {"rope_local_base_freq", nullptr},
      {"rope_parameters",
       {{"full_attention",
         {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 2e6}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 3e4}}}}}};
  const ModelConfig now = parse_gemma3(kinds);
  EXPECT_EQ(
      families::layer_kinds(now.network),
      "layers 5, 11, 17 and 1 more (the last of every 6): all positions, rotation "
      "with base 2000000, linear by 8; the other 22: a window of 512, rotation with "
      "base 30000");
  EXPECT_EQ(attention_of(now, 5).rotation->rope.theta, 2e6);
  EXPECT_EQ(attention_of(now, 5).rotation->rope.factor, 8.0);
  EXPECT_EQ(attention_of(now, 4).rotation->rope.theta, 3e4);
}

/// transformers 5 writes _sliding_window_pattern, but reads sliding_window_pattern.
TEST(Gemma3, ThePatternUnderItsHiddenNameIsKnownAndNeverAnotherOne) {
  const OrderedJson own = {{"_sliding_window_pattern", 6}};
  EXPECT_EQ(parse_gemma3(own).ignored_fields, parse_gemma3().ignored_fields);
  const OrderedJson other = {{"_sliding_window_pattern", 3}};
  EXPECT_EQ(message_of<InputError>([&] { parse_gemma3(other); }),
            "[model] c.json: _sliding_window_pattern = 3 has no effect in transformers, "
            "which takes sliding_window_pattern = 6; add layer_types, or give both the "
            "same number");
}

/// transformers 5 adds rope_scaling to the object of full attention. There it reads
/// rope_type, but not its older name type, and it never reads
/// original_max_position_embeddings outside of that object.
TEST(Gemma3, OldSpellingsThatTransformers5ReadsOtherwiseAreRefused) {
  const auto refused = [](const OrderedJson& changes) {
    return message_of<InputError>([&] { parse_gemma3(changes); });
  };
  EXPECT_EQ(
      refused({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}),
      "[model] c.json: rope_scaling.type \"linear\" is not read by transformers 5, "
      "which takes \"default\" here and leaves factor = 2.0 without effect; earlier "
      "versions take \"linear\". Write \"rope_type\": \"linear\" for the second, "
      "or remove rope_scaling for the first");
  EXPECT_EQ(refused({{"rope_local_base_freq", 0.5}}),
            "[model] c.json: rope_local_base_freq = 0.5 must be greater than 1");
  const OrderedJson local = {{"sliding_attention", {{"rope_theta", 3e4}}}};
  EXPECT_EQ(refused({{"rope_parameters", local}}),
            "[model] c.json: rope_local_base_freq = 10000 disagrees with "
            "rope_parameters.sliding_attention.rope_theta = 30000; keep one of them");
  OrderedJson yarn = {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}},
                      {"original_max_position_embeddings", 8192}};
  EXPECT_EQ(refused(yarn),
            "[model] c.json: rope_scaling.original_max_position_embeddings is missing, "
            "and original_max_position_embeddings = 8192 outside of the object is not "
            "read by transformers 5, which takes max_position_embeddings = 32768 here; "
            "write the number that is meant inside of the object");
  yarn["original_max_position_embeddings"] = 32768;
  EXPECT_EQ(
      attention_of(parse_gemma3(yarn), 5).rotation->rope.original_max_position_embeddings,
      32768);
  yarn["rope_scaling"]["original_max_position_embeddings"] = 8192;
  EXPECT_NE(
      refused(yarn).find("= 8192 disagrees with original_max_position_embeddings = "
                         "32768 outside of the object, which transformers does not"),
      std::string::npos);
  yarn["original_max_position_embeddings"] = 8192;
  EXPECT_NO_THROW(parse_gemma3(yarn));
  yarn["rope_scaling"]["truncate"] = false;
  EXPECT_EQ(
      refused(yarn),
      "[model] c.json: rope_scaling.truncate = false has no effect in transformers; "
      "remove it");
}

TEST(Gemma3, RopeScalingIsAddedToTheObjectOfFullAttention) {
  const OrderedJson linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  OrderedJson both = {{"rope_theta", 5e5},
                      {"rope_scaling", linear},
                      {"rope_parameters", {{"full_attention", {{"rope_theta", 5e5}}}}}};
  const RopeConfig rope = attention_of(parse_gemma3(both), 5).rotation->rope;
  EXPECT_EQ(rope.factor, 2.0);
  EXPECT_EQ(rope.theta, 5e5);
  both["rope_parameters"]["full_attention"]["factor"] = 4.0;
  EXPECT_EQ(
      message_of<InputError>([&] { parse_gemma3(both); }),
      "[model] c.json: rope_scaling disagrees with rope_parameters.full_attention: "
      "factor is 2.0 by the first, which transformers takes, and 4.0 by the second; "
      "keep one of them");
  both["rope_parameters"] = {{"sliding_attention", {{"rope_theta", 1e4}}}};
  EXPECT_EQ(message_of<InputError>([&] { parse_gemma3(both); }),
            "[model] c.json: rope_scaling stands beside rope_parameters without "
            "\"full_attention\", to which transformers adds it; add that object");
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
