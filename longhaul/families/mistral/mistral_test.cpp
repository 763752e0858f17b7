#include "longhaul/families/decoder.h"

#include "tests/support/settings.h"

namespace longhaul {
namespace {

ModelConfig parse_mistral(const OrderedJson& changes = {},
                          const std::string& removed = "") {
  OrderedJson json = OrderedJson::parse(
      read_text(source_dir() / "tests/fixtures/configs/mistral-7b.json"));
  for (const auto& [key, value] : changes.items()) json[key] = value;
  if (!removed.empty()) json.erase(removed);
  return parse_model_config(json.dump(), "c.json");
}

std::string refused_mistral(const OrderedJson& changes, const std::string& removed = "") {
  return message_of<InputError>([&] { parse_mistral(changes, removed); });
}

/// The numbers of parameters come from transformers 5.23.
TEST(Mistral, ThePublishedModelIsCountedAsTransformersCounts) {
  const ModelConfig config = parse_mistral();
  EXPECT_EQ(config.description.num_parameters(), 7'241'732'096);
  EXPECT_EQ(attention_of(config.network.blocks[0])->head_dim, 128);
}

TEST(Mistral, AttentionSeesTheWindowAndWithoutOneAll) {
  const ModelConfig within = parse_mistral();
  EXPECT_EQ(attention_of(within.network.blocks[0])->window, 4096);
  const std::vector<std::string> types(32, "full_attention");
  EXPECT_NO_THROW(parse_mistral({{"sliding_window", nullptr}, {"layer_types", types}}));
  EXPECT_EQ(message_of<InputError>([&] { parse_mistral({{"layer_types", types}}); }),
            "[model] c.json: layer_types says \"full_attention\", and sliding_window = "
            "4096 gives each layer a window: versions of transformers obey one or the "
            "other; remove layer_types, or set sliding_window to null");
  const ModelConfig all = parse_mistral({{"sliding_window", nullptr}});
  EXPECT_EQ(attention_of(all.network.blocks[0])->window, std::nullopt);
  const auto full = [](const ModelConfig& config, int64_t seq_len) {
    return config.description.flops_per_token(seq_len).full;
  };
  EXPECT_EQ(full(within, 4096), full(all, 4096));
  // The difference is scores and values of 32 heads of 128 in 32 blocks, for 28672 fewer
  // positions.
  EXPECT_EQ(full(all, 32768) - full(within, 32768), 6.0 * 2 * 4096 * 32 * 28672);
}

TEST(Mistral, RefusesWhatTransformersWouldTakeForSomethingElse) {
  EXPECT_EQ(refused_mistral({}, "sliding_window"),
            "[model] c.json: sliding_window is missing, and no default is safe "
            "(transformers takes 4096); add it, or set model.override.sliding_window");
  EXPECT_EQ(refused_mistral({}, "num_key_value_heads"),
            "[model] c.json: num_key_value_heads is missing, and no default is safe "
            "(transformers takes 8); add it, or set model.override.num_key_value_heads");
  EXPECT_EQ(refused_mistral({{"sliding_window", 0}}),
            "[model] c.json: sliding_window = 0 must be from 1 to 2147483648");
  EXPECT_EQ(refused_mistral({{"layer_types", {"sliding_attention"}}}),
            "[model] c.json: layer_types \"sliding_attention\" is not available yet; "
            "only \"full_attention\" is");
}

}  // namespace
}  // namespace longhaul
