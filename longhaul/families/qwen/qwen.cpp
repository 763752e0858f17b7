#include "longhaul/families/decoder.h"

#include <fmt/format.h>

namespace longhaul::families {
namespace {

void change_qwen(int version, const ConfigFields& fields, Network& network) {
  // Without this field sliding_window and max_window_layers have no effect.
  fields.refuse_true({"use_sliding_window"}, "is not available yet");
  if (fields.boolean("attention_bias").value_or(version == 2) != (version == 2)) {
    fields.fail("attention_bias",
                "= {} is not available yet: this program's Qwen{} has {}", version != 2,
                version, version == 2 ? "biases" : "no biases");
  }
  if (version == 3) return add_norms_of_heads(network);
  for (const DecoderLayer& layer : layers_of(network)) {
    Attention& a = layer.attention;
    a.query.bias = a.key.bias = a.value.bias = true;
  }
}

/// Gives absent fields the sizes that every version of transformers gives them. Qwen2 has
/// no field head_dim of its own, and its class does not read attention_bias.
Family qwen(int version) {
  const bool second = version == 2;
  return decoder_family(
      fmt::format("qwen{}", version), second ? "Qwen2, Qwen2.5" : "Qwen3",
      fmt::format("Qwen{}ForCausalLM", version),
      {.more = "attention_bias max_window_layers sliding_window use_sliding_window",
       .nullable = second ? "attention_bias num_key_value_heads sliding_window"
                          : "num_key_value_heads sliding_window",
       .absent = {.num_key_value_heads = 32,
                  .head_dim = second ? std::nullopt : std::optional<int64_t>(128)},
       .tokenizer = "Qwen2Tokenizer",
       .change = [version](const ConfigFields& fields, Network& network) {
         change_qwen(version, fields, network);
       }});
}

}  // namespace

/// Returns Qwen2 (Yang et al. 2024, arXiv 2407.10671), which has biases of queries, keys
/// and values.
Family qwen2_family() { return qwen(2); }

/// Returns Qwen3 (Yang et al. 2025, arXiv 2505.09388), which has norms of each head of
/// queries and keys.
Family qwen3_family() { return qwen(3); }

}  // namespace longhaul::families
