#include "longhaul/families/decoder.h"
#include "longhaul/families/describe.h"

#include "tests/support/settings.h"

namespace longhaul {
namespace {

/// Returns the published fields of SmolLM3-3B, without the lists that have one entry per
/// layer.
OrderedJson smollm3() {
  return {{"architectures", {"SmolLM3ForCausalLM"}},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"bos_token_id", nullptr},
          {"eos_token_id", 128001},
          {"hidden_act", "silu"},
          {"hidden_size", 2048},
          {"initializer_range", 0.02},
          {"intermediate_size", 11008},
          {"max_position_embeddings", 65536},
          {"max_window_layers", 28},
          {"mlp_bias", false},
          {"model_type", "smollm3"},
          {"no_rope_layer_interval", 4},
          {"num_attention_heads", 16},
          {"num_hidden_layers", 36},
          {"num_key_value_heads", 4},
          {"pad_token_id", 128004},
          {"pretraining_tp", 2},
          {"rms_norm_eps", 1e-06},
          {"rope_scaling", nullptr},
          {"rope_theta", 5000000.0},
          {"sliding_window", nullptr},
          {"use_cache", false},
          {"use_sliding_window", false},
          {"vocab_size", 128256}};
}

bool turns(const ModelConfig& model, size_t layer) {
  const families::Branch& first = model.network.blocks.at(layer).front().branches.front();
  return std::get<families::Attention>(first.core).rotation.has_value();
}

/// The numbers of parameters come from transformers 5.23.
TEST(SmolLm3, ThePublishedModelIsCountedAsTransformersCounts) {
  const ModelConfig model = parse_model_config(smollm3().dump(), "c.json");
  EXPECT_EQ(model.description.num_parameters(), 3'075'098'624);
  EXPECT_TRUE(model.description.tied);
}

TEST(SmolLm3, EveryFourthLayerIsNotRotatedOrThoseThatTheListNames) {
  const ModelConfig by_interval = parse_model_config(smollm3().dump(), "c.json");
  for (const size_t layer : {0, 2, 3, 4, 7, 35}) {
    EXPECT_EQ(turns(by_interval, layer), layer % 4 != 3) << layer;
  }
  OrderedJson json = smollm3();
  std::vector<int> list(36, 1);
  list[5] = 0;
  json["no_rope_layers"] = list;
  const ModelConfig by_list = parse_model_config(json.dump(), "c.json");
  EXPECT_FALSE(turns(by_list, 5));
  EXPECT_TRUE(turns(by_list, 3));
  EXPECT_EQ(
      families::layer_kinds(by_interval.network),
      "layers 3, 7, 11 and 6 more (the last of every 4): no rotation; the other 27: "
      "rotation with base 5000000");
  EXPECT_EQ(families::layer_kinds(by_list.network),
            "layer 5: no rotation; the other 35: rotation with base 5000000");
  json["no_rope_layers"] = {1, 0};
  EXPECT_EQ(message_of<InputError>([&] { parse_model_config(json.dump(), "c.json"); }),
            "[model] c.json: no_rope_layers expected a list with a 1 or a 0 for each "
            "layer");
}

}  // namespace
}  // namespace longhaul
