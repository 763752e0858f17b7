#include "longhaul/families/decoder.h"

#include "tests/support/settings.h"

namespace longhaul {
namespace {

// The published config.json of granite-3.0-2b-base.
constexpr std::string_view kGranite = R"({
  "architectures": ["GraniteForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.1, "attention_multiplier": 0.015625, "bos_token_id": 0,
  "embedding_multiplier": 12.0, "eos_token_id": 0, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
  "logits_scaling": 8.0, "max_position_embeddings": 4096, "mlp_bias": false,
  "model_type": "granite", "num_attention_heads": 32, "num_hidden_layers": 40,
  "num_key_value_heads": 8, "pad_token_id": 0, "residual_multiplier": 0.22,
  "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.46.0.dev0", "use_cache": true, "vocab_size": 49155
})";

ModelConfig parse_granite(const OrderedJson& changes = {}) {
  OrderedJson json = OrderedJson::parse(kGranite);
  for (const auto& [key, value] : changes.items()) json[key] = value;
  return parse_model_config(json.dump(), "c.json");
}

/// The numbers of parameters come from transformers 5.23.
TEST(Granite, ThePublishedModelIsCountedAsTransformersCounts) {
  const ModelConfig model = parse_granite();
  EXPECT_EQ(model.description.num_parameters(), 2'533'531'648);
  EXPECT_TRUE(model.ignored_fields.empty());
}

TEST(Granite, EveryNumberStandsWhereItIsMultiplied) {
  const families::Network network = parse_granite().network;
  EXPECT_EQ(network.embedding.scale, 12.0);
  EXPECT_FALSE(network.embedding.rounds_scale);
  EXPECT_EQ(std::get<families::LanguageHead>(network.head).logits_divisor, 8.0);
  for (const families::Step& step : network.blocks.back()) {
    EXPECT_EQ(step.branches.front().scale, 0.22);
  }
  const families::Branch& first = network.blocks.back().front().branches.front();
  EXPECT_EQ(std::get<families::Attention>(first.core).scale, 0.015625);
}

TEST(Granite, DropsAttentionAsPublishedModelsSay) {
  const families::Network network = parse_granite().network;
  const families::Branch& first = network.blocks.front().front().branches.front();
  EXPECT_EQ(std::get<families::Attention>(first.core).dropout, 0.1);
}

}  // namespace
}  // namespace longhaul
