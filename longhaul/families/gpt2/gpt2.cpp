#include "longhaul/families/gpt2/gpt2.h"

#include <fmt/format.h>

#include <cmath>

#include "longhaul/families/limits.h"
#include "longhaul/families/settings_of.h"
#include "longhaul/families/unit_maker.h"

namespace longhaul {
namespace {

using families::ConfigFields;
using families::Feature;
using families::Field;
using families::UnitMaker;

constexpr const char* kGpt2Prefix = "transformer.";
constexpr const char* kGpt2Tokens = "transformer.wte.weight";
constexpr const char* kGpt2Head = "lm_head.weight";

/// transformers drops activations by default; nothing here does.
void check_no_gpt2_dropout(const ConfigFields& fields) {
  for (const std::string key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    const double probability = fields.number(key).value_or(0.1);
    if (probability == 0.0) continue;
    fields.fail(
        key, fmt::format("{} {}: dropout is not available yet; set "
                         "model.override.{} = 0.0 to train without it",
                         fields.find(key) == nullptr ? "is absent and stands for" : "=",
                         probability, key));
  }
}

/// Fields that must hold the one value that the built mathematics has.
void check_gpt2_neutral(const ConfigFields& fields) {
  check_no_gpt2_dropout(fields);
  const std::string act = fields.text("activation_function").value_or("gelu_new");
  if (act != "gelu_new" && act != "gelu_pytorch_tanh") {
    fields.fail("activation_function",
                fmt::format("\"{}\" is not available; supported: \"gelu_new\"", act));
  }
  if (!fields.boolean("scale_attn_weights").value_or(true)) {
    fields.fail("scale_attn_weights", "= false is not available");
  }
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn",
                          "add_cross_attention"}) {
    if (fields.boolean(key).value_or(false)) {
      fields.fail(key, "= true is not available");
    }
  }
}

/// A size under GPT-2's own name, or under the name that other families have for it:
/// transformers takes both for one field.
int64_t gpt2_size(const ConfigFields& fields, const char* own, const char* usual,
                  int64_t high) {
  const auto by_usual_name = fields.integer(usual, 1, high);
  if (!by_usual_name) return fields.required_integer(own, 1, high);
  const auto by_own_name = fields.integer(own, 1, high);
  if (by_own_name && *by_own_name != *by_usual_name) {
    fields.fail(usual,
                fmt::format("= {} disagrees with {} = {}, another name of the same "
                            "field; keep one of them",
                            *by_usual_name, own, *by_own_name));
  }
  return *by_usual_name;
}

Gpt2Settings read_gpt2_settings(const ConfigFields& fields) {
  Gpt2Settings s;
  s.n_embd = gpt2_size(fields, "n_embd", "hidden_size", families::kMaxWidth);
  s.n_layer = gpt2_size(fields, "n_layer", "num_hidden_layers", families::kMaxLayers);
  s.n_head = gpt2_size(fields, "n_head", "num_attention_heads", families::kMaxWidth);
  s.n_inner = fields.integer("n_inner", 1, families::kMaxWidth).value_or(4 * s.n_embd);
  if (s.n_embd % s.n_head != 0) {
    fields.fail("n_embd",
                fmt::format("= {} does not divide by n_head = {}", s.n_embd, s.n_head));
  }
  s.layer_norm_epsilon = fields.eps("layer_norm_epsilon", 1e-5);
  s.initializer_range = fields.initializer_range();
  s.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(true);
  return s;
}

/// Queries, keys and values are one tensor in the files, and all matrices are [in, out].
class Gpt2Unit {
 public:
  Gpt2Unit(const Gpt2Settings& settings, int64_t layer)
      : s_(settings),
        unit_(UnitKind::Block, layer, settings.initializer_range),
        name_(fmt::format("{}h.{}.", kGpt2Prefix, layer)),
        // Radford et al. 2019, section 2.3: by the square root of the residual layers.
        residual_(settings.initializer_range /
                  std::sqrt(2.0 * static_cast<double>(settings.n_layer))) {}

  UnitDescription describe() {
    const int64_t head_dim = s_.n_embd / s_.n_head;
    const Feature x = unit_.input(s_.n_embd);
    const Feature in = unit_.layer_norm(name_ + "ln_1", x);
    unit_.enter();
    const Feature q = fused(0, "attn.q_proj", ShardUnit::QueryHeads, in);
    const Feature k = fused(1, "attn.k_proj", ShardUnit::KeyHeads, in);
    const Feature v = fused(2, "attn.v_proj", ShardUnit::KeyHeads, in);
    const Feature out = projection({"attn.o_proj", "attn.c_proj"}, s_.n_embd,
                                   unit_.attention(q, k, v, head_dim),
                                   {ShardUnit::QueryHeads, 1}, residual_);
    unit_.leave();
    const Feature wide = unit_.layer_norm(name_ + "ln_2", unit_.sum(x, out));
    unit_.enter();
    const Feature up = projection({"mlp.up_proj", "mlp.c_fc"}, s_.n_inner, wide,
                                  {ShardUnit::Elements, 0});
    projection({"mlp.down_proj", "mlp.c_proj"}, s_.n_embd, unit_.gelu(up),
               {ShardUnit::Elements, 1}, residual_);
    unit_.leave();
    return unit_.take();
  }

 private:
  struct Names {
    std::string here;
    std::string stored;
    int64_t part = 0;  ///< of `parts` that lie one after another in the stored tensor
    int64_t parts = 1;
  };

  Feature fused(int64_t part, const std::string& name, ShardUnit heads,
                const Feature& x) {
    return projection({name, "attn.c_attn", part, 3}, s_.n_embd, x, {heads, 0});
  }

  Feature projection(const Names& names, int64_t out, const Feature& x, ShardSplit split,
                     std::optional<double> stddev = {}) {
    const StoredForm form{name_ + names.stored, true, out * names.parts,
                          out * names.part,     out,  out};
    return unit_.stored_linear(name_ + names.here, form, out, x, split, true, stddev);
  }

  const Gpt2Settings& s_;
  UnitMaker unit_;
  std::string name_;
  double residual_;
};

ModelDescription describe_gpt2(const Gpt2Settings& s, int64_t vocab_size,
                               int64_t positions) {
  ModelDescription model;
  model.passed = {{"hidden", s.n_embd}};
  model.query_heads = s.n_head;
  model.key_heads = s.n_head;
  model.optional_prefix = kGpt2Prefix;
  UnitMaker embedding(UnitKind::Embedding, 0, s.initializer_range);
  embedding.table(kGpt2Tokens, vocab_size, s.n_embd);
  embedding.table("transformer.wpe.weight", positions, s.n_embd);
  embedding.leave();
  model.units.push_back(embedding.take());
  for (int64_t i = 0; i < s.n_layer; ++i) {
    model.units.push_back(Gpt2Unit(s, i).describe());
    for (const char* mask : {"bias", "masked_bias"}) {
      model.buffers.push_back(fmt::format("{}h.{}.attn.{}", kGpt2Prefix, i, mask));
    }
  }
  UnitMaker head(UnitKind::Head, 0, s.initializer_range);
  const Feature x = head.layer_norm("transformer.ln_f", head.input(s.n_embd));
  families::add_output(model, head, x, vocab_size, {kGpt2Tokens, kGpt2Head},
                       s.tie_word_embeddings);
  return model;
}

class Gpt2Family : public families::Family {
 public:
  std::string model_type() const override { return "gpt2"; }
  std::string about() const override { return "GPT-2"; }
  std::vector<std::string> architectures() const override { return {"GPT2LMHeadModel"}; }
  std::vector<std::string> fields() const override {
    return {"activation_function", "add_cross_attention", "attn_pdrop", "embd_pdrop",
            "initializer_range", "layer_norm_epsilon", "n_ctx", "n_embd", "n_head",
            "n_inner", "n_layer", "n_positions", "reorder_and_upcast_attn", "resid_pdrop",
            "scale_attn_by_inverse_layer_idx", "scale_attn_weights",
            // The usual names of four of them.
            "hidden_size", "max_position_embeddings", "num_attention_heads",
            "num_hidden_layers",
            // Of other heads than a language model's.
            "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
            "summary_type", "summary_use_proj", "tie_word_embeddings"};
  }

  void read(const ConfigFields& fields, ModelConfig& config) const override {
    check_gpt2_neutral(fields);
    const Gpt2Settings settings = read_gpt2_settings(fields);
    // A table of them is a parameter: no more than can be one.
    config.max_position_embeddings =
        gpt2_size(fields, "n_positions", "max_position_embeddings", families::kMaxVocab);
    config.description =
        describe_gpt2(settings, config.vocab_size, config.max_position_embeddings);
    config.settings = std::make_shared<Gpt2Settings>(settings);
  }

  std::vector<Field> settings(const ModelConfig& config) const override {
    // All members by name: one that is added does not compile until it stands here.
    const auto& [embd, inner, layers, heads, eps, range, tied] = gpt2_settings(config);
    return {{"n_embd", fmt::format("{}", embd), true},
            {"n_inner", fmt::format("{}", inner), true},
            {"n_layer", fmt::format("{}", layers), true},
            {"n_head", fmt::format("{}", heads), true},
            {"layer_norm_epsilon", fmt::format("{}", eps), true},
            {"initializer_range", fmt::format("{}", range), false},
            {"tie_word_embeddings", fmt::format("{}", tied), true}};
  }
};

}  // namespace

const Gpt2Settings& gpt2_settings(const ModelConfig& config) {
  return families::settings_of<Gpt2Settings>(config, "GPT-2");
}

const families::Family& gpt2_family() {
  static const Gpt2Family family;
  return family;
}

}  // namespace longhaul
