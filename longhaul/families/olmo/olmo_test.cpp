#include "longhaul/families/decoder.h"

#include "tests/support/settings.h"

namespace longhaul {
namespace {

// The published config.json of OLMo-2-0425-1B.
constexpr std::string_view kOlmo2 = R"({
  "architectures": ["Olmo2ForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "eos_token_id": 100257, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
  "max_position_embeddings": 4096, "model_type": "olmo2", "num_attention_heads": 16,
  "num_hidden_layers": 16, "num_key_value_heads": 16, "pad_token_id": 100277,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000,
  "tie_word_embeddings": false, "torch_dtype": "float32",
  "transformers_version": "4.47.0", "use_cache": false, "vocab_size": 100352
})";

ModelConfig parse_olmo(const OrderedJson& changes = {}) {
  OrderedJson json = OrderedJson::parse(kOlmo2);
  for (const auto& [key, value] : changes.items()) json[key] = value;
  return parse_model_config(json.dump(), "c.json");
}

/// Returns the fields of OLMo-3-1025-7B that differ from kOlmo2.
OrderedJson olmo3() {
  return {{"architectures", {"Olmo3ForCausalLM"}},
          {"model_type", "olmo3"},
          {"hidden_size", 4096},
          {"intermediate_size", 11008},
          {"num_attention_heads", 32},
          {"num_hidden_layers", 32},
          {"num_key_value_heads", 32},
          {"max_position_embeddings", 65536},
          {"sliding_window", 4096},
          {"vocab_size", 100278},
          {"rope_scaling",
           {{"rope_type", "yarn"},
            {"factor", 8.0},
            {"attention_factor", 1.2079441541679836},
            {"beta_fast", 32.0},
            {"beta_slow", 1.0},
            {"original_max_position_embeddings", 8192}}}};
}

/// The numbers of parameters come from transformers 5.23.
TEST(Olmo, PublishedModelsAreCountedAsTransformersCounts) {
  const ModelConfig model = parse_olmo();
  EXPECT_EQ(model.description.num_parameters(), 1'484'916'736);
  EXPECT_TRUE(model.ignored_fields.empty());
  EXPECT_EQ(parse_olmo(olmo3()).description.num_parameters(), 7'298'011'136);
}

TEST(Olmo, NormsStandBehindTheBranchesAlone) {
  const ModelConfig model = parse_olmo();
  for (const families::Step& step : model.network.blocks.front()) {
    EXPECT_FALSE(step.branches.front().before);
    ASSERT_TRUE(step.branches.front().after);
    EXPECT_EQ(step.branches.front().after->form, RmsForm::WeightBeforeCast);
  }
}

TEST(Olmo, VersionThreeHasAWindowInThreeOfFourLayersAndScalesTheOthers) {
  const ModelConfig model = parse_olmo(olmo3());
  for (const size_t layer : {0, 2, 3, 4, 31}) {
    const auto& attention = std::get<families::Attention>(
        model.network.blocks.at(layer).front().branches.front().core);
    const bool full = layer % 4 == 3;
    EXPECT_EQ(attention.window.has_value(), !full) << layer;
    EXPECT_EQ(attention.rotation->rope.kind,
              full ? RopeConfig::Kind::Yarn : RopeConfig::Kind::Plain);
    EXPECT_EQ(attention.rotation->rope.theta, 5e5);
  }
}

/// transformers 5 gives an outer rope_theta to full attention alone, and 500000 to layers
/// with a window. transformers 4.57 gives it to all, and takes 10000 if it is absent.
TEST(Olmo, VersionThreeRefusesABaseThatNotAllLayersWouldGet) {
  OrderedJson json = olmo3();
  const auto refused = [&] { return message_of<InputError>([&] { parse_olmo(json); }); };
  json["rope_theta"] = 10000;
  EXPECT_EQ(
      refused(),
      "[model] c.json: rope_theta gives \"full_attention\" the base 10000, and "
      "\"sliding_attention\" none: transformers 5 takes 500000 for "
      "\"sliding_attention\" (24 of 32 layers), and transformers 4.57 one rope_theta for "
      "all layers. Write the base of each, for example rope_parameters = "
      "{\"full_attention\": {\"rope_theta\": 10000}, \"sliding_attention\": "
      "{\"rope_theta\": 10000}}");
  // The model is accepted once each kind of layer has a base, as the message asks.
  json["rope_parameters"] = {{"full_attention", {{"rope_theta", 10000}}},
                             {"sliding_attention", {{"rope_theta", 10000}}}};
  for (const size_t layer : {2, 3}) {
    const auto attention = std::get<families::Attention>(
        parse_olmo(json).network.blocks.at(layer).front().branches.front().core);
    EXPECT_EQ(attention.rotation->rope.theta, 10000.0);
  }
  json["rope_parameters"]["sliding_attention"] = nullptr;
  EXPECT_NE(refused().find("and \"sliding_attention\" none"), std::string::npos);
  // With full attention in all layers, each layer gets the outer rope_theta.
  json["layer_types"] = std::vector<std::string>(32, "full_attention");
  EXPECT_NO_THROW(parse_olmo(json));
  json = olmo3();
  json["rope_theta"] = nullptr;
  EXPECT_EQ(refused(),
            "[model] c.json: rope_theta is null, which transformers refuses; give it a "
            "number");
  json["rope_parameters"] = {{"full_attention", {{"rope_theta", nullptr}}}};
  EXPECT_NE(refused().find("full_attention: rope_theta is null"), std::string::npos);
}

}  // namespace
}  // namespace longhaul
