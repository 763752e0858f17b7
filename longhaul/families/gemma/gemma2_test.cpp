#include "longhaul/families/decoder.h"

#include "tests/support/settings.h"

namespace longhaul {
namespace {

// The published config.json of gemma-2-2b.
constexpr std::string_view kGemma2 = R"({
  "architectures": ["Gemma2ForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "attn_logit_softcapping": 50.0, "bos_token_id": 2,
  "cache_implementation": "hybrid", "eos_token_id": 1, "final_logit_softcapping": 30.0,
  "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
  "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
  "initializer_range": 0.02, "intermediate_size": 9216, "max_position_embeddings": 8192,
  "model_type": "gemma2", "num_attention_heads": 8, "num_hidden_layers": 26,
  "num_key_value_heads": 4, "pad_token_id": 0, "query_pre_attn_scalar": 256,
  "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096,
  "torch_dtype": "float32", "transformers_version": "4.42.4", "use_cache": true,
  "vocab_size": 256000
})";

const OrderedJson kNothing = OrderedJson::object();

/// Returns the model with changed fields and without the field `removed`.
ModelConfig parse_gemma2(const OrderedJson& changes, const std::string& removed = "") {
  OrderedJson json = OrderedJson::parse(kGemma2);
  json.update(changes);
  json.erase(removed);
  return parse_model_config(json.dump(), "c.json");
}

double logits_cap(const ModelConfig& model) {
  return std::get<families::LanguageHead>(model.network.head).logits_cap;
}

TEST(Gemma2, PublishedModelsAreCountedAsPublished) {
  EXPECT_EQ(parse_gemma2(kNothing).description.num_parameters(), 2'614'341'888);
  OrderedJson larger = {{"hidden_size", 3584},
                        {"intermediate_size", 14336},
                        {"num_hidden_layers", 42},
                        {"num_attention_heads", 16},
                        {"num_key_value_heads", 8}};
  EXPECT_EQ(parse_gemma2(larger).description.num_parameters(), 9'241'705'984);
  larger = {{"hidden_size", 4608},         {"intermediate_size", 36864},
            {"num_hidden_layers", 46},     {"num_attention_heads", 32},
            {"num_key_value_heads", 16},   {"head_dim", 128},
            {"query_pre_attn_scalar", 144}};
  const ModelConfig largest = parse_gemma2(larger);
  EXPECT_EQ(largest.description.num_parameters(), 27'227'128'320);
  EXPECT_EQ(attention_of(largest.network.blocks[0])->scale, 1.0 / 12.0);
}

TEST(Gemma2, EverySecondLayerHasAWindowAndAllHaveACap) {
  const ModelConfig model = parse_gemma2(kNothing);
  for (const size_t layer : {0, 1, 24, 25}) {
    const families::Attention& attention = *attention_of(model.network.blocks[layer]);
    EXPECT_EQ(attention.window.has_value(), layer % 2 == 0) << layer;
    EXPECT_EQ(attention.score_cap, 50.0) << layer;
  }
  EXPECT_EQ(logits_cap(model), 30.0);
  EXPECT_EQ(model.description.units.back().forward.logits_copies, 2);
}

TEST(Gemma2, AnAbsentCapIsTheUsualOneAndNullIsNone) {
  EXPECT_EQ(logits_cap(parse_gemma2(kNothing, "final_logit_softcapping")), 30.0);
  EXPECT_EQ(logits_cap(parse_gemma2({{"final_logit_softcapping", nullptr}})), 0.0);
  const ModelConfig uncapped = parse_gemma2({{"attn_logit_softcapping", nullptr}});
  EXPECT_EQ(attention_of(uncapped.network.blocks[0])->score_cap, 0.0);
  const ModelConfig absent = parse_gemma2(kNothing, "attn_logit_softcapping");
  EXPECT_EQ(attention_of(absent.network.blocks[0])->score_cap, 50.0);
  EXPECT_EQ(message_of<InputError>([] { parse_gemma2({{"attn_logit_softcapping", 0}}); }),
            "[model] c.json: attn_logit_softcapping = 0 must be above 0, or null for "
            "none");
}

}  // namespace
}  // namespace longhaul
