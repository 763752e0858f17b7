#include "longhaul/families/bert/bert.h"

#include <fmt/format.h>

#include "longhaul/families/gelu.h"
#include "longhaul/families/limits.h"
#include "longhaul/families/outline.h"
#include "longhaul/families/padding.h"
#include "longhaul/families/settings_of.h"
#include "longhaul/families/unit_maker.h"

namespace longhaul {
namespace {

using families::ConfigFields;
using families::Feature;
using families::Field;
using families::UnitMaker;

constexpr const char* kBertWords = "bert.embeddings.word_embeddings.weight";
constexpr const char* kBertHead = "cls.predictions.decoder.weight";
constexpr const char* kPreTraining = "BertForPreTraining";
/// Of parameters that each rank has whole, and uses where features are split: its part of
/// the gradient is that of its part of the vocabulary.
constexpr ShardSplit kInside = {ShardUnit::None, 0};

/// Fields that must hold the one value that the built mathematics has.
void check_bert_neutral(const ConfigFields& fields) {
  const std::string kind = fields.text("position_embedding_type").value_or("absolute");
  if (kind != "absolute") {
    fields.fail("position_embedding_type",
                fmt::format("\"{}\" is not available; supported: \"absolute\"", kind));
  }
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    if (fields.boolean(key).value_or(false)) {
      fields.fail(key, "= true is not available");
    }
  }
  if (!fields.boolean("tie_word_embeddings").value_or(true)) {
    fields.fail("tie_word_embeddings", "= false is not available");
  }
}

double read_bert_dropout(const ConfigFields& fields, const char* key) {
  const double probability = fields.number(key).value_or(0.1);
  if (probability < 0.0 || probability >= 1.0) {
    fields.fail(key, fmt::format("= {} must be at least 0 and below 1", probability));
  }
  return probability;
}

/// Without a name: with both heads.
bool has_next_sentence(const ConfigFields& fields) {
  const OrderedJson* named = fields.find("architectures");
  if (named == nullptr || named->empty()) return true;
  return named->front() == kPreTraining;
}

BertSettings read_bert_settings(const ConfigFields& fields) {
  BertSettings s;
  families::read_outline_of_even_heads(fields, s);
  // Examples have two.
  s.type_vocab_size =
      fields.integer("type_vocab_size", 2, families::kMaxVocab).value_or(2);
  s.layer_norm_eps = fields.eps("layer_norm_eps", 1e-12);
  s.initializer_range = fields.initializer_range();
  s.tanh_gelu = families::read_tanh_gelu(fields);
  s.hidden_dropout = read_bert_dropout(fields, "hidden_dropout_prob");
  s.attention_dropout = read_bert_dropout(fields, "attention_probs_dropout_prob");
  s.next_sentence = has_next_sentence(fields);
  return s;
}

class BertUnit {
 public:
  BertUnit(const BertSettings& settings, int64_t layer)
      : s_(settings),
        unit_(UnitKind::Block, layer, settings.initializer_range),
        name_(fmt::format("bert.encoder.layer.{}.", layer)) {}

  UnitDescription describe() {
    const int64_t H = s_.hidden_size;
    const ShardSplit queries = {ShardUnit::QueryHeads, 0};
    const ShardSplit keys = {ShardUnit::KeyHeads, 0};
    const ShardSplit inner = {ShardUnit::Elements, 0};
    const Feature x = unit_.input(H);
    unit_.both_ways();
    unit_.enter();
    const Feature q =
        projection("attention.q_proj", "attention.self.query", H, x, queries);
    const Feature k = projection("attention.k_proj", "attention.self.key", H, x, keys);
    const Feature v = projection("attention.v_proj", "attention.self.value", H, x, keys);
    const Feature seen = unit_.attention(q, k, v, H / s_.num_attention_heads);
    const Feature out = projection("attention.o_proj", "attention.output.dense", H, seen,
                                   {ShardUnit::QueryHeads, 1});
    unit_.leave();
    const Feature h =
        unit_.layer_norm(name_ + "attention.output.LayerNorm", unit_.sum(x, out));
    unit_.enter();
    const Feature up =
        projection("up_proj", "intermediate.dense", s_.intermediate_size, h, inner);
    const Feature down = projection("down_proj", "output.dense", H, unit_.gelu(up),
                                    {ShardUnit::Elements, 1});
    unit_.leave();
    unit_.layer_norm(name_ + "output.LayerNorm", unit_.sum(h, down));
    return unit_.take();
  }

 private:
  Feature projection(const std::string& name, const std::string& stored, int64_t out,
                     const Feature& x, ShardSplit split) {
    const StoredForm form{name_ + stored, false, out, 0, out, out};
    return unit_.stored_linear(name_ + name, form, out, x, split, true);
  }

  const BertSettings& s_;
  UnitMaker unit_;
  std::string name_;
};

UnitDescription bert_embedding(const BertSettings& s, int64_t vocab_size,
                               int64_t positions) {
  UnitMaker unit(UnitKind::Embedding, 0, s.initializer_range);
  unit.table(kBertWords, vocab_size, s.hidden_size, s.padding_row);
  unit.table("bert.embeddings.position_embeddings.weight", positions, s.hidden_size);
  unit.leave();
  unit.whole_table("bert.embeddings.token_type_embeddings.weight", s.type_vocab_size,
                   s.hidden_size);
  unit.layer_norm("bert.embeddings.LayerNorm", unit.looked_up(s.hidden_size));
  return unit.take();
}

UnitDescription bert_head(const BertSettings& s, int64_t vocab_size) {
  UnitMaker unit(UnitKind::Head, 0, s.initializer_range);
  const auto layer = [&](const std::string& name, int64_t out, const Feature& in) {
    const Feature y = unit.matrix(name + ".weight", out, in, kInside);
    unit.bias(name + ".bias", out, kInside);
    return y;
  };
  const Feature x = unit.input(s.hidden_size);
  unit.enter();
  const Feature dense =
      layer("cls.predictions.transform.dense", s.hidden_size, unit.masked_rows(x));
  unit.tied_loss_head(vocab_size, unit.layer_norm("cls.predictions.transform.LayerNorm",
                                                  unit.kept_gelu(dense), kInside));
  unit.bias("cls.predictions.bias", vocab_size, ShardSplit{ShardUnit::Vocabulary, 0});
  if (s.next_sentence) {
    const Feature pooled =
        unit.tanh(layer("bert.pooler.dense", s.hidden_size, unit.first_rows(x)));
    unit.cross_entropy(layer("cls.seq_relationship", 2, pooled));
  }
  return unit.take();
}

ModelDescription describe_bert(const BertSettings& s, int64_t vocab_size,
                               int64_t positions) {
  ModelDescription model;
  model.passed = {{"hidden", s.hidden_size}};
  model.query_heads = s.num_attention_heads;
  model.key_heads = s.num_attention_heads;
  model.losses = {{kMaskedToken}};
  model.drops = s.hidden_dropout > 0.0 || s.attention_dropout > 0.0;
  model.old_endings = {{".LayerNorm.gamma", ".LayerNorm.weight"},
                       {".LayerNorm.beta", ".LayerNorm.bias"}};
  model.buffers = {"bert.embeddings.position_ids", "cls.predictions.decoder.bias"};
  if (s.next_sentence) {
    model.losses.push_back({kNextSentence, LossTerm::Over::Targets, true});
  } else {
    // Published files have both heads, and a config.json that names one.
    for (const std::string layer : {"bert.pooler.dense", "cls.seq_relationship"}) {
      model.buffers.push_back(layer + ".weight");
      model.buffers.push_back(layer + ".bias");
    }
  }
  model.units.push_back(bert_embedding(s, vocab_size, positions));
  for (int64_t i = 0; i < s.num_hidden_layers; ++i) {
    model.units.push_back(BertUnit(s, i).describe());
  }
  model.units.push_back(bert_head(s, vocab_size));
  model.tied = TiedHead{kBertWords, kBertHead};
  return model;
}

class BertFamily : public families::Family {
 public:
  std::string model_type() const override { return "bert"; }
  std::string about() const override { return "BERT"; }
  std::vector<std::string> architectures() const override {
    return {kPreTraining, "BertForMaskedLM"};
  }
  std::vector<std::string> fields() const override {
    return {"add_cross_attention", "attention_probs_dropout_prob", "hidden_act",
            "hidden_dropout_prob", "hidden_size", "initializer_range",
            "intermediate_size", "is_decoder", "layer_norm_eps",
            "max_position_embeddings", "num_attention_heads", "num_hidden_layers",
            "pad_token_id", "position_embedding_type", "tie_word_embeddings",
            "type_vocab_size",
            // Of other heads, and how a result is computed.
            "chunk_size_feed_forward", "classifier_dropout"};
  }

  void read(const ConfigFields& fields, ModelConfig& config) const override {
    check_bert_neutral(fields);
    BertSettings settings = read_bert_settings(fields);
    settings.padding_row = families::read_padding_row(fields, config, 0);
    // A table of them is a parameter: no more than can be one.
    config.max_position_embeddings =
        fields.required_integer("max_position_embeddings", 1, families::kMaxVocab);
    config.description =
        describe_bert(settings, config.vocab_size, config.max_position_embeddings);
    config.settings = std::make_shared<BertSettings>(settings);
  }

  std::vector<Field> settings(const ModelConfig& config) const override {
    // All members by name: one that is added does not compile until it stands here.
    const auto& [hidden, inner, layers, heads, types, eps, range, tanh, dropped,
                 forgotten, padding, pairs] = bert_settings(config);
    const auto field = [](const char* name, const auto& value, bool of_result = true) {
      return Field{name, fmt::format("{}", value), of_result};
    };
    return {field("hidden_size", hidden),
            field("intermediate_size", inner),
            field("num_hidden_layers", layers),
            field("num_attention_heads", heads),
            field("type_vocab_size", types),
            field("layer_norm_eps", eps),
            field("hidden_act by its tanh form", tanh),
            families::padding_setting(padding),
            field("next-sentence head", pairs, false),
            field("initializer_range", range, false),
            field("hidden_dropout_prob", dropped, false),
            field("attention_probs_dropout_prob", forgotten, false)};
  }
};

}  // namespace

const BertSettings& bert_settings(const ModelConfig& config) {
  return families::settings_of<BertSettings>(config, "BERT");
}

const families::Family& bert_family() {
  static const BertFamily family;
  return family;
}

}  // namespace longhaul
