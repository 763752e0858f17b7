#include <algorithm>
#include <map>
#include <set>

#include "longhaul/base/json.h"
#include "longhaul/families/model_config.h"
#include "tests/support/names_without_decay.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

// The published config.json of BERT-base.
constexpr std::string_view kBase = R"({
  "architectures": ["BertForPreTraining"], "attention_probs_dropout_prob": 0.1,
  "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
  "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-12,
  "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 12,
  "num_hidden_layers": 12, "pad_token_id": 0, "position_embedding_type": "absolute",
  "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "use_cache": true,
  "vocab_size": 30522
})";

ModelConfig parse_bert(const OrderedJson& changes = {}) {
  OrderedJson json = OrderedJson::parse(kBase);
  for (const auto& [key, value] : changes.items()) json[key] = value;
  return parse_model_config(json.dump(), "c.json");
}

std::string refused_bert(const OrderedJson& changes) {
  return message_of<InputError>([&] { parse_bert(changes); });
}

const OrderedJson kLarge = {{"hidden_size", 1024},
                            {"intermediate_size", 4096},
                            {"num_hidden_layers", 24},
                            {"num_attention_heads", 16}};
const OrderedJson kMaskedLm = {{"architectures", {"BertForMaskedLM"}}};

/// The numbers of parameters of BertForPreTraining and BertForMaskedLM come from
/// transformers; tied parameters count once.
TEST(Bert, PublishedModelsAreCountedAsTransformersCounts) {
  EXPECT_EQ(parse_bert().description.num_parameters(), 110'106'428);
  EXPECT_EQ(parse_bert(kLarge).description.num_parameters(), 336'226'108);
  EXPECT_EQ(parse_bert(kMaskedLm).description.num_parameters(), 109'514'298);
  EXPECT_TRUE(parse_bert().ignored_fields.empty());
}

TEST(Bert, TheArchitectureSaysWhichTermsItLearns) {
  const auto terms = [](const ModelConfig& model) {
    return model.description.losses_with_targets();
  };
  EXPECT_EQ(terms(parse_bert()), (std::vector<std::string>{kMaskedToken, kNextSentence}));
  EXPECT_EQ(terms(parse_bert({{"architectures", nullptr}})), terms(parse_bert()));
  EXPECT_EQ(terms(parse_bert(kMaskedLm)), std::vector<std::string>{kMaskedToken});
  EXPECT_FALSE(parse_bert().description.is_causal());
  // Files may hold parameters that the model does not train.
  const auto spare = parse_bert(kMaskedLm).description.spare_names();
  EXPECT_EQ(std::ranges::count(spare, "bert.pooler.dense.weight"), 1);
}

TEST(Bert, FilesHoldItUnderTransformersNames) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const format::TensorSlice& tensor : parse_bert().description.stored_tensors()) {
    shapes[tensor.name] = tensor.global_shape;
  }
  EXPECT_EQ(shapes.size(), 5U + 16 * 12 + 9);
  const std::string layer = "bert.encoder.layer.3.";
  EXPECT_EQ(shapes.at(layer + "attention.self.query.weight"),
            (std::vector<int64_t>{768, 768}));
  EXPECT_EQ(shapes.at(layer + "attention.output.dense.bias"),
            (std::vector<int64_t>{768}));
  EXPECT_EQ(shapes.at(layer + "intermediate.dense.weight"),
            (std::vector<int64_t>{3072, 768}));
  EXPECT_EQ(shapes.at(layer + "output.dense.weight"), (std::vector<int64_t>{768, 3072}));
  EXPECT_EQ(shapes.at("cls.predictions.bias"), (std::vector<int64_t>{30522}));
}

TEST(Bert, NormsAndBiasesDoNotDecay) {
  const std::set<std::string> plain = names_without_decay(parse_bert().description);
  EXPECT_TRUE(plain.contains("bert.embeddings.LayerNorm.weight"));
  EXPECT_TRUE(plain.contains("cls.predictions.bias"));
  EXPECT_FALSE(plain.contains("bert.embeddings.token_type_embeddings.weight"));
  EXPECT_EQ(plain.size(), 2U + 10 * 12 + 6);
}

/// The products of BERT-base at 128 tokens with 20 masked were computed by hand.
TEST(Bert, FlopsAreThoseOfMaskedTokensAndWholeSequences) {
  const double H = 768.0;
  const double blocks = 12.0 * (4 * H * H + 2 * H * 3072);
  const double attention = 12.0 * 2 * H * 128;
  const double masked = 20.0 / 128.0 * (H * H + H * 30522);
  const double first = (H * H + 2 * H) / 128.0;
  const FlopsPerToken flops = parse_bert().description.flops_per_token(128);
  EXPECT_DOUBLE_EQ(flops.full, 6.0 * (blocks + attention + masked + first));
  EXPECT_EQ(flops.causal, flops.full);
}

TEST(Bert, ThePaddingRowIsThatOfTheClassWhereTheFileHasNone) {
  const auto row = [](const OrderedJson& changes) {
    return parse_bert(changes).description.padding_row();
  };
  EXPECT_EQ(row({}), 0);
  EXPECT_EQ(row({{"pad_token_id", 5}}), 5);
  EXPECT_EQ(row({{"pad_token_id", nullptr}}), std::nullopt);
  OrderedJson json = OrderedJson::parse(kBase);
  json.erase("pad_token_id");
  EXPECT_EQ(parse_model_config(json.dump(), "c.json").description.padding_row(), 0);
  EXPECT_NE(message_of<ConfigError>([] {
              check_trainable(parse_bert({{"pad_token_id", 30522}}));
            }).find("pad_token_id = 30522 names no row"),
            std::string::npos);
  // In BERT each token sees all others, also if is_causal is true.
  EXPECT_NO_THROW(parse_bert({{"is_causal", false}}));
}

TEST(Bert, RefusesWhatIsNotComputed) {
  EXPECT_EQ(refused_bert({{"position_embedding_type", "relative_key"}}),
            "[model] c.json: position_embedding_type \"relative_key\" is not available; "
            "supported: \"absolute\"");
  EXPECT_EQ(refused_bert({{"is_decoder", true}}),
            "[model] c.json: is_decoder = true is not available");
  EXPECT_EQ(refused_bert({{"tie_word_embeddings", false}}),
            "[model] c.json: tie_word_embeddings = false is not available");
  EXPECT_EQ(refused_bert({{"hidden_dropout_prob", 1.0}}),
            "[model] c.json: hidden_dropout_prob = 1 must be at least 0 and below 1");
  EXPECT_EQ(refused_bert({{"hidden_size", 770}}),
            "[model] c.json: hidden_size = 770 does not divide by num_attention_heads = "
            "12");
  EXPECT_NE(refused_bert({{"hidden_act", "relu"}}).find("hidden_act \"relu\""),
            std::string::npos);
  EXPECT_NE(refused_bert({{"type_vocab_size", 1}}).find("type_vocab_size"),
            std::string::npos);
  EXPECT_NE(refused_bert({{"architectures", {"BertModel"}}}).find("BertModel"),
            std::string::npos);
}

}  // namespace
}  // namespace longhaul
