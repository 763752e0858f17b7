#include "longhaul/families/shared_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

#include "longhaul/families/plausible_sizes.h"

namespace longhaul::families {

void read_outline(const ConfigFields& fields, Outline& outline) {
  outline.hidden_size = fields.required_integer("hidden_size", 1, kMaxWidth);
  outline.intermediate_size = fields.required_integer("intermediate_size", 1, kMaxWidth);
  outline.num_hidden_layers = fields.required_integer("num_hidden_layers", 1, kMaxLayers);
  outline.num_attention_heads =
      fields.required_integer("num_attention_heads", 1, kMaxWidth);
}

void read_outline_of_even_heads(const ConfigFields& fields, Outline& outline) {
  read_outline(fields, outline);
  if (outline.hidden_size % outline.num_attention_heads != 0) {
    fields.fail("hidden_size", "= {} does not divide by num_attention_heads = {}",
                outline.hidden_size, outline.num_attention_heads);
  }
}

Network begin_network(const Outline& outline, int64_t key_heads, int64_t max_positions) {
  Network network;
  network.width = outline.hidden_size;
  network.query_heads = outline.num_attention_heads;
  network.key_heads = key_heads;
  network.stddev = outline.initializer_range;
  network.max_positions = max_positions;
  return network;
}

Activation read_gelu(const ConfigFields& fields) {
  constexpr std::array kTanh = {"gelu_new", "gelu_fast", "gelu_pytorch_tanh"};
  const std::string act = fields.text("hidden_act").value_or("gelu");
  if (std::ranges::count(kTanh, act) > 0) return Activation::GeluTanh;
  if (act != "gelu") {
    fields.fail("hidden_act", "\"{}\" is not available; supported: \"gelu\", \"{}\"", act,
                fmt::join(kTanh, "\", \""));
  }
  return Activation::GeluExact;
}

std::optional<int64_t> read_padding_row(const ConfigFields& fields, ModelConfig& config,
                                        std::optional<int64_t> absent) {
  constexpr const char* kKey = "pad_token_id";
  using Limits = std::numeric_limits<int64_t>;
  const auto id = fields.object().contains(kKey)
                      ? fields.integer(kKey, Limits::min(), Limits::max())
                      : absent;
  if (!id) return std::nullopt;
  if (*id < -config.vocab_size || *id >= config.vocab_size) {
    config.training_problem = fmt::format(
        "{}: {} = {} names no row of the embedding, which has vocab_size = {}: "
        "transformers refuses this model too; remove the field, or set "
        "model.override.{} to a token",
        fields.file(), kKey, *id, config.vocab_size, kKey);
    return std::nullopt;
  }
  return *id < 0 ? config.vocab_size + *id : *id;
}

}  // namespace longhaul::families
