#include "longhaul/families/decoder.h"

#include <fmt/format.h>

#include <utility>

#include "longhaul/families/describe.h"
#include "longhaul/families/plausible_sizes.h"

namespace longhaul::families {
namespace {

/// Checks the fields of which the program supports only one value.
void check_neutral(const ConfigFields& fields, const DecoderFields& family) {
  const auto partial = fields.number("partial_rotary_factor");
  if (partial.value_or(1.0) != 1.0 && !family.parts_of_heads) {
    fields.fail("partial_rotary_factor", "= {} is not available yet; only 1.0 is",
                *partial);
  }
  const OrderedJson* types = fields.find("layer_types");
  if (types == nullptr || !types->is_array() || family.kinds_of_layers) return;
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

/// Returns Llama's block of the layer.
Block llama_block(const DecoderSettings& s, const RopeConfig& rope, int64_t layer) {
  const std::string name = fmt::format("model.layers.{}.", layer);
  const std::string attn = name + "self_attn.", mlp = name + "mlp.";
  const int64_t query = s.num_attention_heads * s.head_dim;
  const int64_t key = s.num_key_value_heads * s.head_dim;
  const auto norm = [&](const char* end) {
    return Norm{Norm::Kind::Rms, name + end, s.rms_norm_eps};
  };
  Attention attention;
  attention.query = {attn + "q_proj", query};
  attention.key = {attn + "k_proj", key};
  attention.value = {attn + "v_proj", key};
  attention.out = {attn + "o_proj", s.hidden_size};
  attention.head_dim = s.head_dim;
  attention.rotation = Rotation{rope, s.head_dim};
  attention.extras_last = true;
  Branch first{.before = norm("input_layernorm"), .core = std::move(attention)};
  Branch second{
      .before = norm("post_attention_layernorm"),
      .core = FeedForward{.gate = Linear{mlp + "gate_proj", s.intermediate_size},
                          .up = {mlp + "up_proj", s.intermediate_size},
                          .down = {mlp + "down_proj", s.hidden_size}}};
  return {{{std::move(first)}}, {{std::move(second)}}};
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

void read_decoder(const DecoderFields& family, const ConfigFields& fields,
                  ModelConfig& config) {
  check_activation(fields, family.activation, family.activations);
  check_neutral(fields, family);
  DecoderSettings settings;
  const AbsentFields& absent = family.absent;
  read_sizes(fields, absent, settings);
  settings.rms_norm_eps = fields.eps("rms_norm_eps");
  settings.initializer_range = fields.initializer_range();
  settings.tie_word_embeddings =
      fields.boolean("tie_word_embeddings").value_or(absent.tie_word_embeddings);
  settings.padding_row = read_padding_row(fields, config, absent.pad_token_id);
  const Rotation rotation =
      family.parts_of_heads ? read_part_rope(fields, settings.head_dim)
      : family.rotation
          ? Rotation{family.rotation(fields), settings.head_dim}
          : Rotation{read_rope(fields, absent.rope_theta), settings.head_dim};
  const double dropout = fields.dropout("attention_dropout", 0.0);
  config.network = decoder_network(
      settings, rotation.rope, config.vocab_size,
      fields.required_integer("max_position_embeddings", 1, kMaxPositions));
  for (const DecoderLayer& layer : layers_of(config.network)) {
    layer.attention.dropout = dropout;
    layer.attention.rotation->features = rotation.features;
  }
  family.change(fields, config.network);
}

}  // namespace

Family decoder_family(const std::string& model_type, const std::string& about,
                      const std::string& architectures, const DecoderFields& of) {
  return {model_type,
          about,
          architectures,
          fmt::format("{} {} {}", kDecoderFields, of.activation, of.more),
          fmt::format("{} {}", kNullable, of.nullable),
          [of](const ConfigFields& fields, ModelConfig& config) {
            read_decoder(of, fields, config);
          },
          of.tokenizer};
}

Network decoder_network(const DecoderSettings& s, const RopeConfig& rope,
                        int64_t vocab_size, int64_t max_positions) {
  Network network = begin_network(s, s.num_key_value_heads, max_positions);
  network.embedding.tokens = {"model.embed_tokens", vocab_size};
  network.embedding.padding_row = s.padding_row;
  for (int64_t i = 0; i < s.num_hidden_layers; ++i) {
    network.blocks.push_back(llama_block(s, rope, i));
  }
  network.head = LanguageHead{
      {Norm::Kind::Rms, "model.norm", s.rms_norm_eps}, "lm_head", s.tie_word_embeddings};
  return network;
}

std::vector<DecoderLayer> layers_of(Network& network) {
  std::vector<DecoderLayer> layers;
  for (Block& block : network.blocks) {
    Branch &first = block.at(0).branches.at(0), &second = block.at(1).branches.at(0);
    layers.push_back({fmt::format("model.layers.{}.", layers.size()), first, second,
                      std::get<Attention>(first.core),
                      std::get<FeedForward>(second.core)});
  }
  return layers;
}

Norm norm_like_last(const Network& network, const std::string& name) {
  Norm norm = std::get<LanguageHead>(network.head).norm;
  norm.name = name;
  return norm;
}

void add_norms_of_heads(Network& network, bool over_all_heads) {
  for (const DecoderLayer& layer : layers_of(network)) {
    Attention& attention = layer.attention;
    attention.query_norm = norm_like_last(network, layer.name + "self_attn.q_norm");
    attention.key_norm = norm_like_last(network, layer.name + "self_attn.k_norm");
    attention.norms_over_all_heads = over_all_heads;
  }
}

void read_attention_bias(const ConfigFields& fields, Network& network) {
  const bool bias = fields.boolean("attention_bias").value_or(false);
  for (const DecoderLayer& layer : layers_of(network)) {
    Attention& a = layer.attention;
    a.query.bias = a.key.bias = a.value.bias = a.out.bias = bias;
  }
}

void read_mlp_bias(const ConfigFields& fields, Network& network) {
  const bool bias = fields.boolean("mlp_bias").value_or(false);
  for (const DecoderLayer& layer : layers_of(network)) {
    FeedForward& f = layer.feed_forward;
    f.gate->bias = f.up.bias = f.down.bias = bias;
  }
}

void read_window(const ConfigFields& fields, Network& network) {
  const auto window = fields.integer("sliding_window", 1, kMaxPositions);
  if (window && fields.find("layer_types")) {
    fields.fail("layer_types",
                "says \"full_attention\", and sliding_window = {} gives each layer a "
                "window: versions of transformers obey one or the other; remove "
                "layer_types, or set sliding_window to null",
                *window);
  }
  for (const DecoderLayer& layer : layers_of(network)) layer.attention.window = window;
}

void read_kinds_of_layers(const ConfigFields& fields, int64_t absent_window,
                          const std::function<bool(int64_t)>& absent, Network& network) {
  constexpr const char* kWindow = "sliding_window";
  const OrderedJson* types = fields.layer_types(network.blocks.size());
  std::vector<bool> full;
  for (size_t i = 0; i < network.blocks.size(); ++i) {
    if (types == nullptr) {
      full.push_back(absent(static_cast<int64_t>(i)));
      continue;
    }
    const OrderedJson& type = (*types)[i];
    if (type != "full_attention" && type != "sliding_attention") {
      fields.fail(
          "layer_types",
          "{} is not available; supported: \"full_attention\", \"sliding_attention\"",
          json_text(type));
    }
    full.push_back(type == "full_attention");
  }
  const auto window = fields.object().contains(kWindow)
                          ? fields.integer(kWindow, 1, kMaxPositions)
                          : absent_window;
  if (!window && std::ranges::count(full, false) > 0) {
    fields.fail(kWindow,
                "is null, but layer_types has \"sliding_attention\"; give it a number");
  }
  const std::vector<DecoderLayer> layers = layers_of(network);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!full[i]) layers[i].attention.window = window;
  }
}

}  // namespace longhaul::families

namespace longhaul {

ModelConfig make_llama(const DecoderSettings& settings, int64_t vocab_size,
                       int64_t max_position_embeddings) {
  ModelConfig config;
  config.model_type = "llama";
  config.vocab_size = vocab_size;
  config.network = families::decoder_network(settings, {.theta = 10000.0}, vocab_size,
                                             max_position_embeddings);
  config.description = families::describe(config.network);
  return config;
}

}  // namespace longhaul
