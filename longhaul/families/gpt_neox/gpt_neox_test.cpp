#include <algorithm>
#include <map>
#include <set>

#include "longhaul/base/json.h"
#include "longhaul/families/model_config.h"
#include "tests/support/names_without_decay.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

// The published config.json of pythia-70m.
constexpr std::string_view kPythia = R"({
  "architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0,
  "hidden_act": "gelu", "hidden_size": 512, "initializer_range": 0.02,
  "intermediate_size": 2048, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
  "model_type": "gpt_neox", "num_attention_heads": 8, "num_hidden_layers": 6,
  "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false,
  "torch_dtype": "float16", "transformers_version": "4.24.0", "use_cache": true,
  "use_parallel_residual": true, "vocab_size": 50304
})";

/// Returns the model with changed fields; a null removes the field.
ModelConfig parse_neox(const OrderedJson& changes = {}) {
  OrderedJson json = OrderedJson::parse(kPythia);
  for (const auto& [key, value] : changes.items()) {
    json[key] = value;
    if (value.is_null()) json.erase(key);
  }
  return parse_model_config(json.dump(), "c.json");
}

families::Rotation neox_rotation(const OrderedJson& changes) {
  return *families::attention_of(parse_neox(changes).network.blocks[0])->rotation;
}

std::string refused_neox(const OrderedJson& changes) {
  return message_of<InputError>([&] { parse_neox(changes); });
}

/// The numbers of parameters come from transformers 5.23, for pythia-70m, pythia-1.4b and
/// pythia-70m with changed fields.
TEST(GptNeox, PublishedModelsAreCountedAsTransformersCounts) {
  const auto count = [](const OrderedJson& changes) {
    return parse_neox(changes).description.num_parameters();
  };
  EXPECT_EQ(count({}), 70'426'624);
  EXPECT_EQ(count({{"hidden_size", 2048},
                   {"intermediate_size", 8192},
                   {"num_attention_heads", 16},
                   {"num_hidden_layers", 24}}),
            1'414'647'808);
  EXPECT_EQ(count({{"tie_word_embeddings", true}}), 70'426'624 - 50304 * 512);
  EXPECT_EQ(count({{"attention_bias", false}}), 70'426'624 - 6 * 4 * 512);
  EXPECT_TRUE(parse_neox().ignored_fields.empty());
}

TEST(GptNeox, FilesHoldQueriesKeysAndValuesHeadByHead) {
  const ModelDescription model = parse_neox().description;
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const format::TensorSlice& tensor : model.stored_tensors()) {
    shapes[tensor.name] = tensor.global_shape;
  }
  EXPECT_EQ(shapes.size(), 1U + 6 * 12 + 3);
  const std::string block = "gpt_neox.layers.3.";
  EXPECT_EQ(shapes.at(block + "attention.query_key_value.weight"),
            (std::vector<int64_t>{1536, 512}));
  EXPECT_EQ(shapes.at(block + "attention.query_key_value.bias"),
            (std::vector<int64_t>{1536}));
  EXPECT_EQ(shapes.at(block + "mlp.dense_h_to_4h.weight"),
            (std::vector<int64_t>{2048, 512}));
  EXPECT_EQ(shapes.at("embed_out.weight"), (std::vector<int64_t>{50304, 512}));
  for (const ParameterDescription& p : model.units.at(1).parameters) {
    if (p.name != "gpt_neox.layers.0.attention.k_proj.weight") continue;
    // The key of head 2 begins behind two whole heads and its own query.
    EXPECT_EQ(p.stored->row(2 * 64), 2 * 192 + 64);
    EXPECT_EQ(p.stored->row(2 * 64 + 63), 2 * 192 + 127);
  }
}

TEST(GptNeox, NormsAndBiasesDoNotDecayAndOldTablesMayStandBesides) {
  const ModelDescription model = parse_neox().description;
  const std::set<std::string> plain = names_without_decay(model);
  EXPECT_TRUE(plain.contains("gpt_neox.final_layer_norm.weight"));
  EXPECT_TRUE(plain.contains("gpt_neox.layers.0.attention.q_proj.bias"));
  EXPECT_EQ(plain.size(), 6U * 10 + 2);
  const std::vector<std::string> spare = model.spare_names();
  EXPECT_EQ(spare.size(), 6U * 3);
  EXPECT_EQ(std::ranges::count(spare, "gpt_neox.layers.5.attention.rotary_emb.inv_freq"),
            1);
}

TEST(GptNeox, TheRotationIsReadWhereverItStands) {
  const families::Rotation old = neox_rotation({});
  EXPECT_EQ(old.features, 16);
  EXPECT_EQ(old.rope.theta, 10000.0);
  const OrderedJson none = {{"rotary_emb_base", nullptr}, {"rotary_pct", nullptr}};
  OrderedJson changes = none;
  changes["rope_parameters"] = {{"rope_type", "linear"},
                                {"factor", 2.0},
                                {"rope_theta", 5e4},
                                {"partial_rotary_factor", 0.5}};
  const families::Rotation now = neox_rotation(changes);
  EXPECT_EQ(now.features, 32);
  EXPECT_EQ(now.rope.theta, 5e4);
  EXPECT_EQ(now.rope.kind, RopeConfig::Kind::Linear);
  EXPECT_EQ(refused_neox(none),
            "[model] c.json: rotary_emb_base is missing, and so is "
            "rope_parameters.rope_theta; add one of them");
  changes["rotary_pct"] = 0.25;
  EXPECT_EQ(refused_neox(changes),
            "[model] c.json: rotary_pct = 0.25 disagrees with "
            "rope_parameters.partial_rotary_factor = 0.5, the value that transformers "
            "takes; keep one of them");
  EXPECT_EQ(refused_neox({{"rotary_pct", 0.05}}),
            "[model] c.json: rotary_pct (partial_rotary_factor) = 0.05 of heads of 64 "
            "gives 3 features; the number of features must be even");
  EXPECT_EQ(refused_neox({{"rotary_pct", 1.5}}),
            "[model] c.json: rotary_pct (partial_rotary_factor) = 1.5 must be above 0 "
            "and at most 1");
  EXPECT_EQ(refused_neox({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}),
            "[model] c.json: rope_scaling.rope_type \"dynamic\" is not available; "
            "supported: \"default\", \"linear\", \"llama3\", \"yarn\"");
}

TEST(GptNeox, RefusesWhatIsNotComputed) {
  EXPECT_EQ(refused_neox({{"hidden_dropout", 0.1}}),
            "[model] c.json: hidden_dropout = 0.1: dropout is not available yet; set "
            "model.override.hidden_dropout = 0.0 to train without it");
  EXPECT_EQ(refused_neox({{"hidden_act", "quick_gelu"}}),
            "[model] c.json: hidden_act \"quick_gelu\" is not available; supported: "
            "\"gelu\", \"gelu_new\", \"gelu_fast\", \"gelu_pytorch_tanh\"");
  EXPECT_EQ(refused_neox({{"num_attention_heads", 7}}),
            "[model] c.json: hidden_size = 512 does not divide by num_attention_heads = "
            "7");
}

/// Outside of rope_scaling and rope_parameters transformers reads only the old names of a
/// rotation, rotary_emb_base and rotary_pct.
TEST(GptNeox, WhatTransformersPassesOverMustAgreeWithWhatItTakes) {
  OrderedJson changes = {{"rotary_emb_base", nullptr}, {"rope_theta", 5e4}};
  EXPECT_EQ(
      refused_neox(changes),
      "[model] c.json: rope_theta = 50000 has no effect in transformers, which takes "
      "10000 where rotary_emb_base is absent; set rotary_emb_base instead");
  changes["rope_theta"] = 10000.0;
  EXPECT_EQ(neox_rotation(changes).rope.theta, 10000.0);
  EXPECT_EQ(refused_neox({{"rotary_pct", nullptr}, {"partial_rotary_factor", 0.5}}),
            "[model] c.json: partial_rotary_factor = 0.5 has no effect in transformers, "
            "which takes 0.25 where rotary_pct is absent; set rotary_pct instead");
  EXPECT_EQ(refused_neox({{"rope_theta", 5e4}}),
            "[model] c.json: rope_theta = 50000 disagrees with rotary_emb_base = 10000, "
            "the value that transformers takes; keep one of them");
  // If a file has rope_scaling and rope_parameters, transformers reads only rope_scaling.
  const OrderedJson linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  changes = {{"rotary_emb_base", nullptr},
             {"rope_scaling", linear},
             {"rope_parameters", linear}};
  changes["rope_parameters"]["rope_theta"] = 5e4;
  EXPECT_NE(refused_neox(changes).find("rope_parameters.rope_theta = 50000 has no effect "
                                       "in transformers beside rope_scaling, which"),
            std::string::npos);
}

TEST(GptNeox, AWidthOfHeadsThatIsNotTheirsIsRefused) {
  EXPECT_EQ(refused_neox({{"head_dim", 32}}),
            "[model] c.json: head_dim = 32 is not available: heads are 64 wide, which is "
            "hidden_size over num_attention_heads; remove it");
  EXPECT_NO_THROW(parse_neox({{"head_dim", 64}}));
}

}  // namespace
}  // namespace longhaul
