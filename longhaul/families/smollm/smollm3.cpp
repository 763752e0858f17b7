#include "longhaul/families/decoder.h"
#include "longhaul/families/plausible_sizes.h"

namespace longhaul::families {
namespace {

void change_smollm3(const ConfigFields& fields, Network& network) {
  // Without this field sliding_window and max_window_layers have no effect.
  fields.refuse_true({"use_sliding_window"}, "is not available yet");
  read_attention_bias(fields, network);
  read_mlp_bias(fields, network);
  const int64_t period =
      fields.integer("no_rope_layer_interval", 1, kMaxLayers).value_or(4);
  const OrderedJson* rotated = fields.find("no_rope_layers");
  const std::vector<DecoderLayer> layers = layers_of(network);
  if (rotated != nullptr && (!rotated->is_array() || rotated->size() < layers.size())) {
    fields.fail("no_rope_layers", "expected a list with a 1 or a 0 for each layer");
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool turns = rotated == nullptr ? (static_cast<int64_t>(i) + 1) % period != 0
                                          : !is_off((*rotated)[i]);
    if (!turns) layers[i].attention.rotation.reset();
  }
}

}  // namespace

/// Returns SmolLM3 (Hugging Face 2025), which is Llama's form with every fourth layer
/// without a rotation (Yang et al. 2025, "RoPE to NoPE and Back Again", arXiv
/// 2501.18795).
Family smollm3_family() {
  return decoder_family(
      "smollm3", "SmolLM3", "SmolLM3ForCausalLM",
      {.more = "attention_bias max_window_layers mlp_bias no_rope_layer_interval "
               "no_rope_layers sliding_window use_sliding_window",
       .nullable = "max_window_layers no_rope_layers num_key_value_heads sliding_window",
       .absent = {.num_key_value_heads = 4,
                  .tie_word_embeddings = true,
                  .pad_token_id = 128004,
                  .rope_theta = 2e6},
       .change = change_smollm3});
}

}  // namespace longhaul::families
