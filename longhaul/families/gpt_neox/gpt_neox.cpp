#include "longhaul/families/gpt_neox/gpt_neox.h"

#include <fmt/format.h>

#include "longhaul/families/gelu.h"
#include "longhaul/families/gpt_neox/rotation.h"
#include "longhaul/families/limits.h"
#include "longhaul/families/outline.h"
#include "longhaul/families/settings_of.h"
#include "longhaul/families/unit_maker.h"

namespace longhaul {
namespace {

using families::ConfigFields;
using families::Feature;
using families::Field;
using families::UnitMaker;

constexpr const char* kNeoxPrefix = "gpt_neox.";
constexpr const char* kNeoxTokens = "gpt_neox.embed_in.weight";
constexpr const char* kNeoxHead = "embed_out.weight";

void check_no_neox_dropout(const ConfigFields& fields) {
  for (const char* key : {"attention_dropout", "hidden_dropout"}) {
    const double probability = fields.number(key).value_or(0.0);
    if (probability == 0.0) continue;
    fields.fail(key, fmt::format("= {}: dropout is not available yet; set "
                                 "model.override.{} = 0.0 to train without it",
                                 probability, key));
  }
}

/// transformers takes it for the rotation alone, where it is neither null nor 0.
void check_neox_head_dim(const ConfigFields& fields, int64_t head_dim) {
  const auto given = fields.integer("head_dim", 0, families::kMaxWidth);
  if (given.value_or(0) == 0 || *given == head_dim) return;
  fields.fail("head_dim",
              fmt::format("= {} is not available: heads are {} wide, which is "
                          "hidden_size over num_attention_heads; remove it",
                          *given, head_dim));
}

GptNeoxSettings read_neox_settings(const ConfigFields& fields) {
  check_no_neox_dropout(fields);
  GptNeoxSettings s;
  families::read_outline_of_even_heads(fields, s);
  check_neox_head_dim(fields, s.head_dim());
  s.layer_norm_eps = fields.eps("layer_norm_eps");
  s.initializer_range = fields.initializer_range();
  s.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
  // Files of the first versions have none of these, and could only mean so.
  s.parallel_residual = fields.boolean("use_parallel_residual").value_or(true);
  s.attention_bias = fields.boolean("attention_bias").value_or(true);
  s.tanh_gelu = families::read_tanh_gelu(fields);
  const families::NeoxRotation rotation =
      families::read_neox_rotation(fields, s.head_dim());
  s.rotated = rotation.features;
  s.rope = rotation.rope;
  return s;
}

/// Queries, keys and values of a head lie one after another in the files, head by head.
class NeoxUnit {
 public:
  NeoxUnit(const GptNeoxSettings& settings, int64_t layer)
      : s_(settings),
        unit_(UnitKind::Block, layer, settings.initializer_range),
        name_(fmt::format("{}layers.{}.", kNeoxPrefix, layer)) {}

  UnitDescription describe() {
    const Feature x = unit_.input(s_.hidden_size);
    const Feature attended = attention(x);
    if (s_.parallel_residual) {
      unit_.sum(x, attended, feed_forward(x));
    } else {
      feed_forward(unit_.sum(x, attended));
    }
    return unit_.take();
  }

 private:
  Feature attention(const Feature& x) {
    const int64_t head_dim = s_.head_dim();
    const Feature in = unit_.layer_norm(name_ + "input_layernorm", x);
    unit_.enter();
    const Feature q = part(0, "q_proj", ShardUnit::QueryHeads, in);
    const Feature k = part(1, "k_proj", ShardUnit::KeyHeads, in);
    const Feature v = part(2, "v_proj", ShardUnit::KeyHeads, in);
    const Feature seen = unit_.attention(unit_.rope(q, s_.rotated),
                                         unit_.rope(k, s_.rotated), v, head_dim);
    const std::string name = name_ + "attention.";
    const Feature out = unit_.stored_linear(
        name + "o_proj", whole(name + "dense", s_.hidden_size), s_.hidden_size, seen,
        {ShardUnit::QueryHeads, 1}, s_.attention_bias);
    unit_.leave();
    return out;
  }

  Feature feed_forward(const Feature& x) {
    const std::string name = name_ + "mlp.";
    const Feature in = unit_.layer_norm(name_ + "post_attention_layernorm", x);
    unit_.enter();
    const Feature up = unit_.stored_linear(
        name + "up_proj", whole(name + "dense_h_to_4h", s_.intermediate_size),
        s_.intermediate_size, in, {ShardUnit::Elements, 0}, true);
    const Feature out = unit_.stored_linear(
        name + "down_proj", whole(name + "dense_4h_to_h", s_.hidden_size), s_.hidden_size,
        unit_.gelu(up), {ShardUnit::Elements, 1}, true);
    unit_.leave();
    return out;
  }

  static StoredForm whole(const std::string& name, int64_t rows) {
    return {name, false, rows, 0, rows, rows};
  }

  /// Queries, keys or values.
  Feature part(int64_t number, const std::string& name, ShardUnit heads,
               const Feature& x) {
    const int64_t head_dim = s_.head_dim();
    const StoredForm form{name_ + "attention.query_key_value",
                          false,
                          3 * s_.hidden_size,
                          number * head_dim,
                          head_dim,
                          3 * head_dim};
    return unit_.stored_linear(name_ + "attention." + name, form, s_.hidden_size, x,
                               {heads, 0}, s_.attention_bias);
  }

  const GptNeoxSettings& s_;
  UnitMaker unit_;
  std::string name_;
};

ModelDescription describe_neox(const GptNeoxSettings& s, int64_t vocab_size) {
  ModelDescription model;
  model.passed = {{"hidden", s.hidden_size}};
  model.query_heads = s.num_attention_heads;
  model.key_heads = s.num_attention_heads;
  UnitMaker embedding(UnitKind::Embedding, 0, s.initializer_range);
  embedding.table(kNeoxTokens, vocab_size, s.hidden_size);
  embedding.leave();
  model.units.push_back(embedding.take());
  for (int64_t i = 0; i < s.num_hidden_layers; ++i) {
    model.units.push_back(NeoxUnit(s, i).describe());
    for (const char* table : {"bias", "masked_bias", "rotary_emb.inv_freq"}) {
      model.buffers.push_back(
          fmt::format("{}layers.{}.attention.{}", kNeoxPrefix, i, table));
    }
  }
  UnitMaker head(UnitKind::Head, 0, s.initializer_range);
  const Feature x =
      head.layer_norm("gpt_neox.final_layer_norm", head.input(s.hidden_size));
  families::add_output(model, head, x, vocab_size, {kNeoxTokens, kNeoxHead},
                       s.tie_word_embeddings);
  return model;
}

class GptNeoxFamily : public families::Family {
 public:
  std::string model_type() const override { return "gpt_neox"; }
  std::string about() const override { return "GPT-NeoX, Pythia"; }
  std::vector<std::string> architectures() const override {
    return {"GPTNeoXForCausalLM"};
  }
  std::vector<std::string> fields() const override {
    return {"attention_bias", "attention_dropout", "head_dim", "hidden_act",
            "hidden_dropout", "hidden_size", "initializer_range", "intermediate_size",
            "layer_norm_eps", "max_position_embeddings", "num_attention_heads",
            "num_hidden_layers", "original_max_position_embeddings",
            "partial_rotary_factor", "rope_parameters", "rope_scaling", "rope_theta",
            "rotary_emb_base", "rotary_pct", "tie_word_embeddings",
            "use_parallel_residual",
            // Of other heads than a language model's, and of encoders.
            "classifier_dropout", "is_decoder"};
  }

  void read(const ConfigFields& fields, ModelConfig& config) const override {
    const GptNeoxSettings settings = read_neox_settings(fields);
    config.max_position_embeddings =
        fields.required_integer("max_position_embeddings", 1, families::kMaxPositions);
    config.description = describe_neox(settings, config.vocab_size);
    config.settings = std::make_shared<GptNeoxSettings>(settings);
  }

  std::vector<Field> settings(const ModelConfig& config) const override {
    // All members by name: one that is added does not compile until it stands here.
    const auto& [hidden, inner, layers, heads, rotated, eps, range, tied, parallel, bias,
                 tanh, rope] = gpt_neox_settings(config);
    const auto field = [](const char* name, const auto& value) {
      return Field{name, fmt::format("{}", value), true};
    };
    std::vector<Field> fields = {field("hidden_size", hidden),
                                 field("intermediate_size", inner),
                                 field("num_hidden_layers", layers),
                                 field("num_attention_heads", heads),
                                 field("rotated features of a head", rotated),
                                 field("layer_norm_eps", eps),
                                 field("tie_word_embeddings", tied),
                                 field("use_parallel_residual", parallel),
                                 field("attention_bias", bias),
                                 field("hidden_act by its tanh form", tanh)};
    fields.push_back({"initializer_range", fmt::format("{}", range), false});
    const std::vector<Field> rotation = families::rope_settings(rope);
    fields.insert(fields.end(), rotation.begin(), rotation.end());
    return fields;
  }
};

}  // namespace

const GptNeoxSettings& gpt_neox_settings(const ModelConfig& config) {
  return families::settings_of<GptNeoxSettings>(config, "GPT-NeoX");
}

const families::Family& gpt_neox_family() {
  static const GptNeoxFamily family;
  return family;
}

}  // namespace longhaul
