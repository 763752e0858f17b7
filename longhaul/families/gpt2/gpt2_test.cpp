#include <fmt/format.h>

#include <map>
#include <set>

#include "longhaul/base/json.h"
#include "longhaul/families/model_config.h"
#include "tests/support/names_without_decay.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

// The published config.json of GPT-2 with another dropout.
constexpr std::string_view kSmall = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.0, "bos_token_id": 50256, "embd_pdrop": 0.0, "eos_token_id": 50256,
  "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
  "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
  "resid_pdrop": 0.0, "summary_activation": null, "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
  "vocab_size": 50257
})";

ModelConfig parse_gpt2(const OrderedJson& changes = {}) {
  OrderedJson json = OrderedJson::parse(kSmall);
  for (const auto& [key, value] : changes.items()) json[key] = value;
  return parse_model_config(json.dump(), "c.json");
}

std::string refused_gpt2(const OrderedJson& changes) {
  return message_of<InputError>([&] { parse_gpt2(changes); });
}

/// The numbers of parameters of gpt2, gpt2-medium and gpt2-xl come from transformers.
TEST(Gpt2, PublishedModelsAreCountedAsTransformersCounts) {
  EXPECT_EQ(parse_gpt2().description.num_parameters(), 124'439'808);
  EXPECT_EQ(parse_gpt2({{"n_embd", 1024}, {"n_head", 16}, {"n_layer", 24}})
                .description.num_parameters(),
            354'823'168);
  EXPECT_EQ(parse_gpt2({{"n_embd", 1600}, {"n_head", 25}, {"n_layer", 48}})
                .description.num_parameters(),
            1'557'611'200);
  EXPECT_EQ(parse_gpt2({{"tie_word_embeddings", false}}).description.num_parameters(),
            124'439'808 + 50257 * 768);
  EXPECT_TRUE(parse_gpt2().ignored_fields.empty());
}

TEST(Gpt2, FilesHoldFusedAndTransposedMatrices) {
  const ModelDescription model = parse_gpt2().description;
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const format::TensorSlice& tensor : model.stored_tensors()) {
    shapes[tensor.name] = tensor.global_shape;
  }
  EXPECT_EQ(shapes.size(), 2U + 12 * 12 + 2);
  EXPECT_EQ(shapes.at("transformer.h.3.attn.c_attn.weight"),
            (std::vector<int64_t>{768, 2304}));
  EXPECT_EQ(shapes.at("transformer.h.3.attn.c_attn.bias"), (std::vector<int64_t>{2304}));
  EXPECT_EQ(shapes.at("transformer.h.3.mlp.c_fc.weight"),
            (std::vector<int64_t>{768, 3072}));
  EXPECT_EQ(shapes.at("transformer.h.3.mlp.c_proj.weight"),
            (std::vector<int64_t>{3072, 768}));
}

TEST(Gpt2, NormsAndBiasesDoNotDecay) {
  const ModelDescription model = parse_gpt2().description;
  const std::set<std::string> plain = names_without_decay(model);
  EXPECT_TRUE(plain.contains("transformer.h.0.ln_1.weight"));
  EXPECT_TRUE(plain.contains("transformer.ln_f.weight"));
  EXPECT_TRUE(plain.contains("transformer.h.0.attn.q_proj.bias"));
  EXPECT_FALSE(plain.contains("transformer.wpe.weight"));
  EXPECT_EQ(plain.size(), 12U * 10 + 2);
}

TEST(Gpt2, DropsWhereTransformersDropsAndWithItsDefaults) {
  EXPECT_FALSE(parse_gpt2().description.drops);
  for (const char* key : {"embd_pdrop", "attn_pdrop", "resid_pdrop"}) {
    OrderedJson json = OrderedJson::parse(kSmall);
    json.erase(key);
    const ModelConfig model = parse_model_config(json.dump(), "c.json");
    EXPECT_TRUE(model.description.drops) << key;
    const families::Network& network = model.network;
    const families::Branch& first = network.blocks.front().front().branches.front();
    const std::map<std::string, double> found = {
        {"embd_pdrop", network.embedding.dropout},
        {"attn_pdrop", std::get<families::Attention>(first.core).dropout},
        {"resid_pdrop", first.dropout}};
    for (const auto& [name, probability] : found) {
      EXPECT_EQ(probability, name == key ? 0.1 : 0.0) << key << ": " << name;
    }
    EXPECT_EQ(network.blocks.back().back().branches.back().dropout, first.dropout);
  }
}

TEST(Gpt2, RefusesWhatIsNotComputed) {
  EXPECT_EQ(refused_gpt2({{"resid_pdrop", 1.0}}),
            "[model] c.json: resid_pdrop = 1 must be at least 0 and below 1");
  EXPECT_EQ(refused_gpt2({{"attn_pdrop", nullptr}}),
            "[model] c.json: attn_pdrop is null, which transformers refuses; give it a "
            "value, or set model.override.attn_pdrop");
  EXPECT_EQ(refused_gpt2({{"activation_function", "relu"}}),
            "[model] c.json: activation_function \"relu\" is not available; supported: "
            "\"gelu_new\"");
  EXPECT_EQ(refused_gpt2({{"scale_attn_by_inverse_layer_idx", true}}),
            "[model] c.json: scale_attn_by_inverse_layer_idx = true is not available");
  EXPECT_EQ(refused_gpt2({{"n_head", 7}}),
            "[model] c.json: n_embd = 768 does not divide by n_head = 7");
}

/// transformers treats GPT-2's own name of a size and the usual name as one field.
TEST(Gpt2, SizesMayHaveTheNamesOfOtherFamilies) {
  for (const auto& [own, usual] : {std::pair("n_embd", "hidden_size"),
                                   {"n_head", "num_attention_heads"},
                                   {"n_layer", "num_hidden_layers"},
                                   {"n_positions", "max_position_embeddings"}}) {
    OrderedJson json = OrderedJson::parse(kSmall);
    const int64_t size = json[own];
    json[usual] = size;
    json.erase(own);
    const ModelConfig model = parse_model_config(json.dump(), "c.json");
    EXPECT_EQ(model.description.num_parameters(), 124'439'808) << usual;
    EXPECT_TRUE(model.ignored_fields.empty());
    EXPECT_EQ(
        refused_gpt2({{usual, 2 * size}}),
        fmt::format("[model] c.json: {} = {} disagrees with {} = {}, another name of "
                    "the same field; keep one of them",
                    usual, 2 * size, own, size));
  }
}

}  // namespace
}  // namespace longhaul
