#include "longhaul/families/decoder.h"

#include <fmt/format.h>

#include <utility>

#include "longhaul/families/describe.h"
#include "longhaul/families/limits.h"
#include "longhaul/families/outline.h"
#include "longhaul/families/padding.h"

namespace longhaul::families {
namespace {

/// Checks the fields that must hold the one value that the program computes with.
void check_neutral(const ConfigFields& fields, bool kinds_of_layers) {
  const auto partial = fields.number("partial_rotary_factor");
  if (partial.value_or(1.0) != 1.0) {
    fields.fail("partial_rotary_factor", "= {} is not available yet; only 1.0 is",
                *partial);
  }
  const OrderedJson* types = fields.find("layer_types");
  if (types == nullptr || !types->is_array() || kinds_of_layers) return;
  for (const OrderedJson& type : *types) {
    if (type == "full_attention") continue;
    fields.fail("layer_types", "{} is not available yet; only \"full_attention\" is",
                json_text(type));
  }
}

void check_activation(const ConfigFields& fields, const std::string& field,
                      const std::vector<std::string>& built) {
  const std::string act = fields.text(field).value_or(built.front());
  if (std::ranges::count(built, act) > 0) return;
  fields.fail(field, "\"{}\" is not available; supported: \"{}\"", act, built.front());
}

/// Returns a size, `absent` if the field is absent, or nothing if the field is null.
std::optional<int64_t> size_or(const ConfigFields& fields, const char* key,
                               std::optional<int64_t> absent) {
  return fields.object().contains(key) ? fields.integer(key, 1, kMaxWidth) : absent;
}

void read_sizes(const ConfigFields& fields, const AbsentFields& absent,
                DecoderSettings& out) {
  read_outline(fields, out);
  out.num_key_value_heads =
      size_or(fields, "num_key_value_heads", absent.num_key_value_heads)
          .value_or(out.num_attention_heads);
  const auto head_dim = size_or(fields, "head_dim", absent.head_dim);
  if (!head_dim && out.hidden_size % out.num_attention_heads != 0) {
    fields.fail(
        "hidden_size",
        "= {} does not divide by num_attention_heads = {}, and head_dim is not given",
        out.hidden_size, out.num_attention_heads);
  }
  out.head_dim = head_dim.value_or(out.hidden_size / out.num_attention_heads);
  if (out.head_dim % 2 != 0) {
    fields.fail("head_dim", "= {} must be even: RoPE turns pairs", out.head_dim);
  }
  if (out.num_attention_heads * out.head_dim > kMaxWidth) {
    fields.fail("head_dim", "{} times num_attention_heads = {} is above {}",
                fields.valued("head_dim", out.head_dim), out.num_attention_heads,
                kMaxWidth);
  }
  if (out.num_attention_heads % out.num_key_value_heads != 0) {
    fields.fail("num_key_value_heads", "{} does not divide num_attention_heads = {}",
                fields.valued("num_key_value_heads", out.num_key_value_heads),
                out.num_attention_heads);
  }
}

Projection projection(const std::string& name, int64_t out, bool bias) {
  return {.name = name, .out = out, .bias = bias};
}

Norm norm(const DecoderSettings& s, const std::string& name) {
  return {Norm::Kind::Rms, name, s.rms_norm_eps, s.norm_form};
}

bool is_set(const std::vector<bool>& layers, int64_t layer) {
  return !layers.empty() && layers.at(static_cast<size_t>(layer));
}

std::optional<Rotation> rotation(const DecoderSettings& s, int64_t layer) {
  if (is_set(s.unrotated_layers, layer)) return std::nullopt;
  const bool other = s.sliding_rope && !is_set(s.full_layers, layer);
  return Rotation{other ? *s.sliding_rope : s.rope, s.head_dim};
}

Attention attention(const DecoderSettings& s, int64_t layer, const std::string& name) {
  const int64_t query = s.num_attention_heads * s.head_dim;
  const int64_t key = s.num_key_value_heads * s.head_dim;
  Attention out{.query = projection(name + "q_proj", query, s.head_biases),
                .key = projection(name + "k_proj", key, s.head_biases),
                .value = projection(name + "v_proj", key, s.head_biases),
                .out = projection(name + "o_proj", s.hidden_size, s.out_bias),
                .head_dim = s.head_dim,
                .rotation = rotation(s, layer),
                .norms_over_all_heads = s.wide_norms,
                .scale = s.attention_scale,
                .dropout = s.attention_dropout,
                .extras_last = true};
  if (!is_set(s.full_layers, layer)) out.window = s.sliding_window;
  if (!s.head_norms && !s.wide_norms) return out;
  out.query_norm = norm(s, name + "q_norm");
  out.key_norm = norm(s, name + "k_norm");
  return out;
}

FeedForward feed_forward(const DecoderSettings& s, const std::string& name) {
  return {.gate = projection(name + "gate_proj", s.intermediate_size, s.mlp_biases),
          .up = projection(name + "up_proj", s.intermediate_size, s.mlp_biases),
          .down = projection(name + "down_proj", s.hidden_size, s.mlp_biases),
          .activation = s.activation};
}

Experts experts(const DecoderSettings& s, const std::string& block) {
  const ExpertSettings& e = *s.experts;
  const std::string name = block + e.layer;
  Experts out;
  out.router = projection(name + "gate", e.experts, false);
  out.top_k = e.top_k;
  out.normalised = e.normalised;
  out.fused = block + "mlp.experts";
  for (int64_t i = 0; i < e.experts; ++i) {
    const std::string expert = fmt::format("{}experts.{}.", name, i);
    out.experts.push_back(
        {.gate = projection(expert + e.gate, e.intermediate_size, false),
         .up = projection(expert + e.up, e.intermediate_size, false),
         .down = projection(expert + e.down, s.hidden_size, false),
         .activation = s.activation});
  }
  return out;
}

Core inner(const DecoderSettings& s, int64_t layer, const std::string& block) {
  if (s.experts && !is_set(s.experts->dense_layers, layer)) return experts(s, block);
  return feed_forward(s, block + "mlp.");
}

/// Returns a block of the layer. Llama has norms before its branches, OLMo 2 behind them
/// and Gemma 3 both. The norm before the feed-forward has another name in files where
/// attention has a norm behind it.
Block block(const DecoderSettings& s, int64_t layer) {
  const std::string name = fmt::format("model.layers.{}.", layer);
  const auto branch = [&](Core core, const char* before, const char* after) {
    Branch out{.core = std::move(core), .scale = s.residual_scale};
    if (s.norms_before) out.before = norm(s, name + before);
    if (s.norms_after) out.after = norm(s, name + after);
    return out;
  };
  return {
      {{branch(attention(s, layer, name + "self_attn."), "input_layernorm",
               "post_attention_layernorm")}},
      {{branch(inner(s, layer, name),
               s.norms_after ? "pre_feedforward_layernorm" : "post_attention_layernorm",
               "post_feedforward_layernorm")}}};
}

/// Fields of config.json that are read of every decoder.
constexpr const char* kDecoderFields =
    "attention_dropout head_dim hidden_size initializer_range intermediate_size "
    "layer_types max_position_embeddings num_attention_heads num_hidden_layers "
    "num_key_value_heads original_max_position_embeddings pad_token_id "
    "partial_rotary_factor rms_norm_eps rope_parameters rope_scaling rope_theta "
    "tie_word_embeddings";
/// Fields that may be null in every decoder.
constexpr const char* kNullable =
    "layer_types original_max_position_embeddings pad_token_id partial_rotary_factor "
    "rope_parameters rope_scaling rope_theta";

}  // namespace

DecoderFamily::DecoderFamily(std::string model_type, std::string about,
                             std::string_view architectures, DecoderFields fields)
    : Family(std::move(model_type), std::move(about), architectures,
             fmt::format("{} {} {}", kDecoderFields, fields.activation, fields.more),
             fmt::format("{} {}", kNullable, fields.nullable)),
      fields_(std::move(fields)) {}

void DecoderFamily::read(const ConfigFields& fields, ModelConfig& config) const {
  check_activation(fields, fields_.activation, fields_.activations);
  check_neutral(fields, fields_.kinds_of_layers);
  DecoderSettings settings;
  const AbsentFields& absent = fields_.absent;
  read_sizes(fields, absent, settings);
  settings.rms_norm_eps = fields.eps("rms_norm_eps");
  settings.initializer_range = fields.initializer_range();
  settings.tie_word_embeddings =
      fields.boolean("tie_word_embeddings").value_or(absent.tie_word_embeddings);
  settings.padding_row = read_padding_row(fields, config, absent.pad_token_id);
  read_rotation(fields, settings);
  settings.attention_dropout = fields.dropout("attention_dropout", 0.0);
  config.max_position_embeddings =
      fields.required_integer("max_position_embeddings", 1, kMaxPositions);
  read_more(fields, settings);
  if (!fields_.kinds_of_layers && settings.sliding_window && fields.find("layer_types")) {
    fields.fail("layer_types",
                "says \"full_attention\", and sliding_window = {} gives each layer a "
                "window: versions of transformers obey one or the other; remove "
                "layer_types, or set sliding_window to null",
                *settings.sliding_window);
  }
  config.network =
      decoder_network(settings, config.vocab_size, config.max_position_embeddings);
}

void read_attention_bias(const ConfigFields& fields, DecoderSettings& settings) {
  settings.head_biases = settings.out_bias =
      fields.boolean("attention_bias").value_or(false);
}

void read_kinds_of_layers(const ConfigFields& fields, int64_t absent_window,
                          const std::function<bool(int64_t)>& absent,
                          DecoderSettings& settings) {
  const auto layers = static_cast<size_t>(settings.num_hidden_layers);
  const OrderedJson* types = fields.layer_types(layers);
  settings.full_layers.clear();
  for (size_t i = 0; i < layers; ++i) {
    if (types == nullptr) {
      settings.full_layers.push_back(absent(static_cast<int64_t>(i)));
      continue;
    }
    const OrderedJson& type = (*types)[i];
    if (type != "full_attention" && type != "sliding_attention") {
      fields.fail(
          "layer_types",
          "{} is not available; supported: \"full_attention\", \"sliding_attention\"",
          json_text(type));
    }
    settings.full_layers.push_back(type == "full_attention");
  }
  settings.sliding_window = fields.object().contains("sliding_window")
                                ? fields.integer("sliding_window", 1, kMaxPositions)
                                : absent_window;
  if (settings.sliding_window || std::ranges::count(settings.full_layers, false) == 0) {
    return;
  }
  fields.fail("sliding_window",
              "is null, but layer_types has \"sliding_attention\"; give it a number");
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
  network.embedding.scale = s.embedding_scale;
  network.embedding.rounds_scale = s.rounds_embedding_scale;
  for (int64_t i = 0; i < s.num_hidden_layers; ++i) network.blocks.push_back(block(s, i));
  network.head = LanguageHead{norm(s, "model.norm"), "lm_head", s.tie_word_embeddings,
                              s.logits_divisor};
  if (!s.experts) return network;
  network.balance = s.experts->balance;
  network.asks_for_balance = s.experts->asks_for_balance;
  // Files with fused experts have the names of transformers 5.
  if (s.experts->layer != "mlp.") {
    network.old_endings = {{".mlp.gate.weight", "." + s.experts->layer + "gate.weight"}};
  }
  return network;
}

}  // namespace longhaul::families

namespace longhaul {

ModelConfig make_llama(const DecoderSettings& settings, int64_t vocab_size,
                       int64_t max_position_embeddings) {
  ModelConfig config;
  config.model_type = "llama";
  config.vocab_size = vocab_size;
  config.max_position_embeddings = max_position_embeddings;
  config.network =
      families::decoder_network(settings, vocab_size, max_position_embeddings);
  config.description = families::describe(config.network);
  return config;
}

}  // namespace longhaul
