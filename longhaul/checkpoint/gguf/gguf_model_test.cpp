#include "longhaul/checkpoint/gguf/gguf_model.h"

#include <algorithm>

#include "longhaul/base/json.h"
#include "longhaul/checkpoint/gguf/gguf_config.h"
#include "tests/support/settings.h"
#include "tests/support/weights_files.h"

namespace longhaul::checkpoint {
namespace {

using format::GgufType;
using format::GgufValue;

/// Returns the config.json of a small decoder with these fields instead of its own; null
/// removes a field.
ModelConfig decoder_with(const OrderedJson& changes) {
  OrderedJson json = {{"model_type", "llama"},
                      {"hidden_size", 64},
                      {"intermediate_size", 96},
                      {"num_hidden_layers", 4},
                      {"num_attention_heads", 4},
                      {"num_key_value_heads", 2},
                      {"max_position_embeddings", 128},
                      {"rms_norm_eps", 1e-6},
                      {"rope_theta", 1e6},
                      {"tie_word_embeddings", false},
                      {"vocab_size", 100}};
  for (const auto& [key, value] : changes.items()) {
    if (value.is_null()) {
      json.erase(key);
    } else {
      json[key] = value;
    }
  }
  return parse_model_config(json.dump(), "c.json");
}

GgufModel described(const OrderedJson& changes, GgufType type = GgufType::F32) {
  return describe_gguf(decoder_with(changes), type, false);
}

std::string refusal_of(const OrderedJson& changes) {
  const std::string said = message_of<InputError>([&] { described(changes); });
  EXPECT_TRUE(said.starts_with("[gguf] c.json: ")) << said;
  return said;
}

const GgufPart* part_named(const GgufModel& model, const std::string& name) {
  const auto found = std::ranges::find_if(
      model.parts, [&](const GgufPart& part) { return part.tensor.name == name; });
  return found == model.parts.end() ? nullptr : &*found;
}

OrderedJson of_type(const std::string& type, OrderedJson more = OrderedJson::object()) {
  more["model_type"] = type;
  if (type == "gemma3_text") more["head_dim"] = 16;
  return more;
}

TEST(GgufModel, RowsOfHeadsGoToTheFileAndBack) {
  // Rows 0 to 3 are those of one head, whose halves are 0 1 and 2 3.
  EXPECT_EQ(GgufPart::row_of_parameter(0, 4), 0);
  EXPECT_EQ(GgufPart::row_of_parameter(1, 4), 2);
  EXPECT_EQ(GgufPart::row_of_parameter(6, 4), 5);
  for (int64_t row = 0; row < 48; ++row) {
    EXPECT_EQ(GgufPart::row_in_file(GgufPart::row_of_parameter(row, 16), 16), row);
  }
}

TEST(GgufModel, LlamaTurnsItsQueriesAndKeysAndNoOthers) {
  const GgufModel llama = described({});
  EXPECT_EQ(part_named(llama, "blk.3.attn_q.weight")->heads, 4);
  EXPECT_EQ(part_named(llama, "blk.3.attn_k.weight")->heads, 2);
  EXPECT_EQ(part_named(llama, "blk.3.attn_v.weight")->heads, 0);
  EXPECT_EQ(*format::find_value(llama.values, "llama.vocab_size"),
            GgufValue(uint32_t{100}));
  const GgufModel qwen = described(of_type("qwen2"));
  EXPECT_EQ(part_named(qwen, "blk.0.attn_q.weight")->heads, 0);
  EXPECT_EQ(part_named(qwen, "blk.0.attn_q.bias")->parameters.front(),
            "model.layers.0.self_attn.q_proj.bias");
  EXPECT_EQ(format::find_value(qwen.values, "qwen2.vocab_size"), nullptr);
}

TEST(GgufModel, ATiedHeadIsLeftOutUnlessTheArchitectureNeedsIt) {
  const OrderedJson tied = {{"tie_word_embeddings", true}};
  EXPECT_EQ(part_named(described(tied), "output.weight"), nullptr);
  const GgufModel stored = describe_gguf(decoder_with(tied), GgufType::F32, true);
  EXPECT_EQ(part_named(stored, "output.weight")->parameters.front(), "lm_head.weight");
  const GgufModel olmo = described(of_type("olmo2", tied));
  EXPECT_EQ(part_named(olmo, "output.weight")->parameters.front(),
            "model.embed_tokens.weight");
}

TEST(GgufModel, GemmasNormsTakeTheirOneAndItsWindowsAreSaidWhereTheyAreUnusual) {
  const GgufModel usual = described(
      of_type("gemma3_text", {{"num_hidden_layers", 7}, {"query_pre_attn_scalar", 16}}));
  EXPECT_TRUE(part_named(usual, "blk.0.post_ffw_norm.weight")->plus_one);
  EXPECT_FALSE(part_named(usual, "blk.0.ffn_up.weight")->plus_one);
  const std::string key = "gemma3.attention.sliding_window_pattern";
  EXPECT_EQ(format::find_value(usual.values, key), nullptr);
  const GgufModel other = described(of_type(
      "gemma3_text", {{"sliding_window_pattern", 2}, {"query_pre_attn_scalar", 16}}));
  EXPECT_EQ(*format::find_value(other.values, key),
            GgufValue(std::vector<bool>{true, false, true, false}));
}

TEST(GgufModel, RowsThatAreNoWholeBlocksBecomeF16) {
  const GgufModel model = described({{"intermediate_size", 80}}, GgufType::Q8_0);
  EXPECT_EQ(part_named(model, "blk.0.ffn_down.weight")->tensor.type, GgufType::F16);
  EXPECT_EQ(part_named(model, "blk.0.ffn_up.weight")->tensor.type, GgufType::Q8_0);
  EXPECT_EQ(part_named(model, "blk.0.ffn_norm.weight")->tensor.type, GgufType::F32);
}

TEST(GgufModel, TheLabelOfSizeHasTwoDigitsAtLeast) {
  GgufModel model;
  const auto label = [&](int64_t elements) {
    model.parts = {GgufPart{.tensor = {"x", {elements}}}};
    return gguf_size_label(model);
  };
  EXPECT_EQ(label(8'030'261'248), "8.0B");
  EXPECT_EQ(label(70'553'706'496), "71B");
  EXPECT_EQ(label(404'000'000), "404M");
  EXPECT_EQ(label(96'000), "96K");
  EXPECT_EQ(label(400), "0.40K");
  model.parts = {GgufPart{.tensor = {"blk.0.ffn_up_exps.weight", {8, 1'000'000, 5}}},
                 GgufPart{.tensor = {"x", {1'000'000}}}};
  EXPECT_EQ(gguf_size_label(model), "8x6.0M");
}

TEST(GgufModel, WhatGgufCannotSayIsRefusedByName) {
  const OrderedJson experts = {{"num_experts", 4},
                               {"num_experts_per_tok", 2},
                               {"moe_intermediate_size", 32},
                               {"norm_topk_prob", true}};
  const auto moe = [&](const char* field, const OrderedJson& value) {
    OrderedJson json = experts;
    json[field] = value;
    return refusal_of(of_type("qwen3_moe", json));
  };
  EXPECT_NO_THROW(described(of_type("qwen3_moe", experts)));
  EXPECT_HAS(moe("norm_topk_prob", false), "norm_topk_prob is false");
  EXPECT_HAS(moe("mlp_only_layers", {2}), "layer 2 has a plain feed-forward");
  EXPECT_HAS(refusal_of(of_type("smollm3", {{"no_rope_layer_interval", 2}})),
             "layer 1 has no rotation. llama.cpp's architecture smollm3 does not");
  EXPECT_HAS(refusal_of(of_type("mistral", {{"sliding_window", 127}})),
             "layer 0 has a window of 127 positions, and the model 128");
  EXPECT_NO_THROW(described(of_type("mistral", {{"sliding_window", 128}})));
  EXPECT_HAS(refusal_of(of_type("gemma2", {{"head_dim", 16}})),
             "models of the type gemma2 are not written as GGUF");
  EXPECT_HAS(refusal_of(of_type("olmo2", {{"attention_bias", true}})),
             "the output of attention has a bias");
  EXPECT_HAS(refusal_of(of_type("olmo2", {{"head_dim", 32}})), "head_dim is 32");
  EXPECT_HAS(refusal_of(of_type("gemma3_text", {{"query_pre_attn_scalar", 17}})),
             "scores of attention have the factor 0.24");
}

TEST(GgufModel, RotationsThatLlamaCppLacksAreRefusedByName) {
  const auto scaled = [](const std::string& type, const OrderedJson& more) {
    OrderedJson rope = {
        {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
    for (const auto& [key, value] : more.items()) rope[key] = value;
    return of_type(type, {{"rope_scaling", rope}});
  };
  EXPECT_NO_THROW(described(scaled("qwen3", {})));
  EXPECT_HAS(refusal_of(scaled("qwen3", {{"attention_factor", 1.0}})),
             "YaRN's attention_factor is 1, and not 1.138");
  EXPECT_HAS(refusal_of(scaled("llama", {{"truncate", false}})), "YaRN's truncate");
  const OrderedJson llama3 = {{"rope_type", "llama3"},
                              {"factor", 8.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 64}};
  EXPECT_HAS(refusal_of(of_type("qwen2", {{"rope_scaling", llama3}})),
             "the rotation is scaled as llama3");
  const GgufModel model = described({{"rope_scaling", llama3}});
  EXPECT_EQ(part_named(model, "rope_freqs.weight")->values.size(), 8U);
  const auto kinds = [](const OrderedJson& sliding) {
    const OrderedJson full = {{"rope_type", "default"}, {"rope_theta", 5e5}};
    return of_type("olmo3",
                   {{"rope_theta", nullptr},
                    {"rope_parameters",
                     {{"full_attention", full}, {"sliding_attention", sliding}}}});
  };
  EXPECT_NO_THROW(described(kinds({{"rope_type", "default"}, {"rope_theta", 5e5}})));
  EXPECT_HAS(refusal_of(kinds({{"rope_type", "default"}, {"rope_theta", 1e4}})),
             "layers with a window have the rotation's base 10000");
  EXPECT_HAS(
      refusal_of(kinds({{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5e5}})),
      "layer 0 has a window and a scaled rotation");
}

TEST(GgufModel, ConfigJsonIsMadeOfKeysOrTheKeyIsNamed) {
  const GgufModel model = described({});
  format::GgufHeader header;
  header.values = {{"general.architecture", std::string("llama")}};
  std::ranges::copy(model.values, std::back_inserter(header.values));
  for (const GgufPart& part : model.parts) header.tensors.push_back(part.tensor);
  const auto config = [&] { return config_of_gguf(header, "f.gguf"); };
  const ModelConfig made = parse_model_config(config(), "made.json");
  EXPECT_EQ(made.network, decoder_with({}).network);
  EXPECT_NO_THROW(check_gguf_values(header, model.values, "f.gguf"));

  const auto said_with = [&](const std::string& key, GgufValue value) {
    format::GgufHeader other = header;
    std::erase_if(other.values, [&](const auto& one) { return one.first == key; });
    other.values.emplace_back(key, std::move(value));
    return message_of<InputError>([&] {
      config_of_gguf(other, "f.gguf");
      check_gguf_values(other, model.values, "f.gguf");
    });
  };
  EXPECT_HAS(said_with("llama.block_count", 4.5F), "block_count is 4.5, which cannot be");
  EXPECT_HAS(said_with("llama.attention.head_count", uint32_t{0}), "head_count is 0");
  EXPECT_HAS(said_with("llama.attention.head_count", std::string("4")), "is \"4\"");
  EXPECT_HAS(said_with("llama.context_length", uint32_t{64}),
             "the key llama.context_length is 64, and the model's config.json gives 128");
  EXPECT_HAS(said_with("llama.attention.scale", 0.5F),
             "the key llama.attention.scale = 0.5 is not read");
  EXPECT_HAS(said_with("llama.rope.dimension_count", uint32_t{8}),
             "dimension_count is 8");
  EXPECT_HAS(said_with("general.architecture", std::string("mamba")),
             "the architecture \"mamba\" is not read; llama, qwen2");
  header.tensors.push_back({"rope_freqs.weight", {8}, GgufType::F32});
  EXPECT_HAS(message_of<InputError>(config),
             "give the model's config.json with --config");
  std::erase_if(header.values,
                [](const auto& one) { return one.first == "llama.block_count"; });
  EXPECT_HAS(message_of<InputError>(config), "the key llama.block_count is missing");
}

}  // namespace
}  // namespace longhaul::checkpoint
