#include "longhaul/families/decoder.h"

#include <fmt/format.h>

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/families/describe.h"
#include "longhaul/families/limits.h"
#include "longhaul/families/outline.h"
#include "longhaul/families/padding.h"
#include "longhaul/families/settings_of.h"

namespace longhaul::families {
namespace {

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

/// A size, or what stands for it where the field is absent, or null.
std::optional<int64_t> size_or(const ConfigFields& fields, const char* key,
                               std::optional<int64_t> absent) {
  return fields.object().contains(key) ? fields.integer(key, 1, kMaxWidth) : absent;
}

/// "= 3", or which number an absent field stands for.
std::string size_of(const ConfigFields& fields, const char* key, int64_t size) {
  if (fields.find(key) != nullptr) return fmt::format("= {}", size);
  return fmt::format("is absent and stands for {}, as in transformers, which", size);
}

void read_sizes(const ConfigFields& fields, const AbsentSizes& absent,
                DecoderSettings& out) {
  read_outline(fields, out);
  out.num_key_value_heads =
      size_or(fields, "num_key_value_heads", absent.num_key_value_heads)
          .value_or(out.num_attention_heads);
  const auto head_dim = size_or(fields, "head_dim", absent.head_dim);
  if (!head_dim && absent.head_dim) {
    fields.fail("head_dim",
                fmt::format("is null, which transformers refuses; give it a number, or "
                            "remove it for {}",
                            *absent.head_dim));
  }
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
    fields.fail("head_dim", fmt::format("{} times num_attention_heads = {} is above {}",
                                        size_of(fields, "head_dim", out.head_dim),
                                        out.num_attention_heads, kMaxWidth));
  }
  if (out.num_attention_heads % out.num_key_value_heads != 0) {
    fields.fail(
        "num_key_value_heads",
        fmt::format("{} does not divide num_attention_heads = {}",
                    size_of(fields, "num_key_value_heads", out.num_key_value_heads),
                    out.num_attention_heads));
  }
}

Projection projection(const std::string& name, int64_t out, bool bias = false) {
  return {.name = name, .out = out, .bias = bias};
}

Norm norm(const DecoderSettings& s, const std::string& name) {
  return {Norm::Kind::Rms, name, s.rms_norm_eps};
}

Attention attention(const DecoderSettings& s, const std::string& name) {
  const int64_t query = s.num_attention_heads * s.head_dim;
  const int64_t key = s.num_key_value_heads * s.head_dim;
  Attention out{.query = projection(name + "q_proj", query, s.head_biases),
                .key = projection(name + "k_proj", key, s.head_biases),
                .value = projection(name + "v_proj", key, s.head_biases),
                .out = projection(name + "o_proj", s.hidden_size),
                .head_dim = s.head_dim,
                .rotation = Rotation{s.rope, s.head_dim},
                .window = s.sliding_window,
                .extras_last = true};
  if (!s.head_norms) return out;
  out.query_norm = norm(s, name + "q_norm");
  out.key_norm = norm(s, name + "k_norm");
  return out;
}

FeedForward feed_forward(const DecoderSettings& s, const std::string& name) {
  return {.gate = projection(name + "gate_proj", s.intermediate_size),
          .up = projection(name + "up_proj", s.intermediate_size),
          .down = projection(name + "down_proj", s.hidden_size)};
}

Block block(const DecoderSettings& s, int64_t layer) {
  const std::string name = fmt::format("model.layers.{}.", layer);
  Branch first{.before = norm(s, name + "input_layernorm"),
               .core = attention(s, name + "self_attn.")};
  Branch second{.before = norm(s, name + "post_attention_layernorm"),
                .core = feed_forward(s, name + "mlp.")};
  return {{{std::move(first)}}, {{std::move(second)}}};
}

template <typename Value>
std::string text_of(const Value& value) {
  return fmt::format("{}", value);
}

/// Fields of config.json that are read of every decoder.
std::vector<std::string> decoder_fields() {
  return {"attention_dropout",   "head_dim",
          "hidden_act",          "hidden_size",
          "initializer_range",   "intermediate_size",
          "layer_types",         "max_position_embeddings",
          "num_attention_heads", "num_hidden_layers",
          "num_key_value_heads", "original_max_position_embeddings",
          "pad_token_id",        "partial_rotary_factor",
          "rms_norm_eps",        "rope_parameters",
          "rope_scaling",        "rope_theta",
          "tie_word_embeddings"};
}

}  // namespace

std::vector<Field> DecoderFamily::settings(const ModelConfig& config) const {
  // All members by name: one that is added does not compile until it stands here.
  const auto& [hidden, intermediate, layers, heads, key_heads, head_dim, eps, range, tied,
               padding, window, biases, norms, rope] = decoder_settings(config);
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
      padding_setting(padding),
      {"sliding_window", window ? text_of(*window) : "null", true},
      {"biases of queries, keys and values", text_of(biases), true},
      {"norms of heads", text_of(norms), true},
  };
  const std::vector<Field> rotation = rope_settings(rope);
  fields.insert(fields.end(), rotation.begin(), rotation.end());
  return fields;
}

std::vector<std::string> DecoderFamily::fields() const {
  std::vector<std::string> names = decoder_fields();
  for (std::string& name : more_fields()) names.push_back(std::move(name));
  return names;
}

void DecoderFamily::read(const ConfigFields& fields, ModelConfig& config) const {
  check_neutral(fields);
  DecoderSettings settings;
  read_sizes(fields, absent_sizes(), settings);
  settings.rms_norm_eps = fields.eps("rms_norm_eps");
  settings.initializer_range = fields.initializer_range();
  // Absent means false in every version of these classes.
  settings.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
  settings.padding_row = read_padding_row(fields, config);
  settings.rope = read_rope(fields);
  config.max_position_embeddings =
      fields.required_integer("max_position_embeddings", 1, kMaxPositions);
  read_more(fields, settings);
  config.network =
      decoder_network(settings, config.vocab_size, config.max_position_embeddings);
  config.settings = std::make_shared<DecoderSettings>(settings);
}

Network decoder_network(const DecoderSettings& s, int64_t vocab_size,
                        int64_t max_positions) {
  Network network;
  network.width = s.hidden_size;
  network.query_heads = s.num_attention_heads;
  network.key_heads = s.num_key_value_heads;
  network.stddev = s.initializer_range;
  network.max_positions = max_positions;
  network.embedding.tokens = {"model.embed_tokens", vocab_size};
  network.embedding.padding_row = s.padding_row;
  for (int64_t i = 0; i < s.num_hidden_layers; ++i) network.blocks.push_back(block(s, i));
  network.head = LanguageHead{norm(s, "model.norm"), "lm_head", s.tie_word_embeddings};
  return network;
}

}  // namespace longhaul::families

namespace longhaul {

const DecoderSettings& decoder_settings(const ModelConfig& config) {
  return families::settings_of<DecoderSettings>(config, "decoder");
}

ModelConfig make_llama(const DecoderSettings& settings, int64_t vocab_size,
                       int64_t max_position_embeddings) {
  ModelConfig config;
  config.model_type = "llama";
  config.vocab_size = vocab_size;
  config.max_position_embeddings = max_position_embeddings;
  config.settings = std::make_shared<DecoderSettings>(settings);
  config.network =
      families::decoder_network(settings, vocab_size, max_position_embeddings);
  config.description = families::describe(config.network);
  return config;
}

}  // namespace longhaul
