#include "longhaul/families/decoder.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/families/limits.h"
#include "longhaul/families/outline.h"

namespace longhaul::families {
namespace {

using Unit = ShardUnit;

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

/// Fields that must hold the one value that the built mathematics has.
void check_neutral(const ConfigFields& fields) {
  const std::string act = fields.text("hidden_act").value_or("silu");
  if (act != "silu" && act != "swish") {
    fields.fail("hidden_act",
                fmt::format("\"{}\" is not available; supported: \"silu\"", act));
  }
  const auto partial = fields.number("partial_rotary_factor");
  if (partial.value_or(1.0) != 1.0) {
    fields.fail("partial_rotary_factor",
                fmt::format("= {} is not available yet; only 1.0 is", *partial));
  }
  for (const char* key : {"attention_dropout"}) {
    const OrderedJson* value = fields.find(key);
    if (value && !is_off(*value)) fields.refuse(key, *value);
  }
  if (const OrderedJson* types = fields.find("layer_types")) {
    for (const OrderedJson& type : *types) {
      if (type == "full_attention") continue;
      fields.fail("layer_types", fmt::format("{} is not available yet; only "
                                             "\"full_attention\" is",
                                             json_text(type)));
    }
  }
}

void read_sizes(const ConfigFields& fields, DecoderSettings& out) {
  read_outline(fields, out);
  out.num_key_value_heads = fields.integer("num_key_value_heads", 1, kMaxWidth)
                                .value_or(out.num_attention_heads);
  const auto head_dim = fields.integer("head_dim", 1, kMaxWidth);
  if (!head_dim && out.hidden_size % out.num_attention_heads != 0) {
    fields.fail(
        "hidden_size",
        fmt::format("= {} does not divide by num_attention_heads = {}, and head_dim "
                    "is not given",
                    out.hidden_size, out.num_attention_heads));
  }
  out.head_dim = head_dim.value_or(out.hidden_size / out.num_attention_heads);
  if (out.head_dim % 2 != 0) {
    fields.fail("head_dim",
                fmt::format("= {} must be even: RoPE turns pairs", out.head_dim));
  }
  if (out.num_attention_heads * out.head_dim > kMaxWidth) {
    fields.fail("head_dim",
                fmt::format("= {} times num_attention_heads = {} is above {}",
                            out.head_dim, out.num_attention_heads, kMaxWidth));
  }
  if (out.num_attention_heads % out.num_key_value_heads != 0) {
    fields.fail("num_key_value_heads",
                fmt::format("= {} does not divide num_attention_heads = {}",
                            out.num_key_value_heads, out.num_attention_heads));
  }
}

/// Split as in "Megatron-LM" (Shoeybi et al.): first projections by rows, second ones by
/// columns.
UnitDescription block(const DecoderSettings& s, int64_t layer, const MoreOfBlock& more) {
  UnitMaker unit(UnitKind::Block, layer, s.initializer_range);
  const std::string name = fmt::format("model.layers.{}.", layer);
  const std::string attention = name + "self_attn.";
  const int64_t query = s.num_attention_heads * s.head_dim;
  const int64_t key = s.num_key_value_heads * s.head_dim;
  const Feature x = unit.input(s.hidden_size);
  const Feature in = unit.norm(name + "input_layernorm.weight", x);
  unit.enter();
  const Feature q =
      unit.matrix(attention + "q_proj.weight", query, in, {Unit::QueryHeads, 0});
  const Feature k =
      unit.matrix(attention + "k_proj.weight", key, in, {Unit::KeyHeads, 0});
  const Feature v =
      unit.matrix(attention + "v_proj.weight", key, in, {Unit::KeyHeads, 0});
  const Feature seen =
      unit.attention(unit.rope(q, s.head_dim), unit.rope(k, s.head_dim), v, s.head_dim);
  const Feature out = unit.matrix(attention + "o_proj.weight", s.hidden_size, seen,
                                  {Unit::QueryHeads, 1});
  unit.leave();
  const Feature h = unit.sum(x, out);
  const Feature wide = unit.norm(name + "post_attention_layernorm.weight", h);
  const int64_t inner = s.intermediate_size;
  unit.enter();
  const Feature gate =
      unit.matrix(name + "mlp.gate_proj.weight", inner, wide, {Unit::Elements, 0});
  const Feature up =
      unit.matrix(name + "mlp.up_proj.weight", inner, wide, {Unit::Elements, 0});
  unit.matrix(name + "mlp.down_proj.weight", s.hidden_size, unit.gated_product(gate, up),
              {Unit::Elements, 1});
  unit.leave();
  if (more) more(unit, name, {q, k});
  return unit.take();
}

template <typename Value>
std::string text_of(const Value& value) {
  return fmt::format("{}", value);
}

}  // namespace

std::vector<Field> decoder_settings(const DecoderSettings& settings) {
  // All members by name: one that is added does not compile until it stands here.
  const auto& [hidden, intermediate, layers, heads, key_heads, head_dim, eps, range, tied,
               rope] = settings;
  std::vector<Field> fields = {
      {"hidden_size", text_of(hidden), true},
      {"intermediate_size", text_of(intermediate), true},
      {"num_hidden_layers", text_of(layers), true},
      {"num_attention_heads", text_of(heads), true},
      {"num_key_value_heads", text_of(key_heads), true},
      {"head_dim", text_of(head_dim), true},
      {"rms_norm_eps", text_of(eps), true},
      {"initializer_range", text_of(range), false},
      {"tie_word_embeddings", text_of(tied), true},
  };
  const std::vector<Field> rotation = rope_settings(rope);
  fields.insert(fields.end(), rotation.begin(), rotation.end());
  return fields;
}

std::vector<std::string> decoder_fields() {
  return {"attention_dropout",   "head_dim",
          "hidden_act",          "hidden_size",
          "initializer_range",   "intermediate_size",
          "layer_types",         "max_position_embeddings",
          "num_attention_heads", "num_hidden_layers",
          "num_key_value_heads", "partial_rotary_factor",
          "rms_norm_eps",        "rope_parameters",
          "rope_scaling",        "rope_theta",
          "tie_word_embeddings"};
}

void read_decoder(const ConfigFields& fields, DecoderSettings& settings) {
  check_neutral(fields);
  read_sizes(fields, settings);
  settings.rms_norm_eps = fields.eps("rms_norm_eps");
  settings.initializer_range = fields.initializer_range();
  // Absent means false in every version of these classes.
  settings.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
  settings.rope = read_rope(fields);
}

ModelDescription describe_decoder(const DecoderSettings& s, int64_t vocab_size,
                                  const MoreOfBlock& more) {
  ModelDescription model;
  model.passed = {{"hidden", s.hidden_size}};
  model.query_heads = s.num_attention_heads;
  model.key_heads = s.num_key_value_heads;
  UnitMaker embedding(UnitKind::Embedding, 0, s.initializer_range);
  embedding.table(kEmbedding, vocab_size, s.hidden_size);
  embedding.leave();
  model.units.push_back(embedding.take());
  for (int64_t i = 0; i < s.num_hidden_layers; ++i) {
    model.units.push_back(block(s, i, more));
  }
  UnitMaker head(UnitKind::Head, 0, s.initializer_range);
  const Feature x = head.norm("model.norm.weight", head.input(s.hidden_size));
  add_output(model, head, x, vocab_size, {kEmbedding, kHead}, s.tie_word_embeddings);
  return model;
}

}  // namespace longhaul::families
