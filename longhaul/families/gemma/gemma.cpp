#include <cmath>

#include "longhaul/families/decoder.h"
#include "longhaul/families/plausible_sizes.h"

namespace longhaul::families {
namespace {

RopeConfig read_full_rotation(const ConfigFields& fields) {
  return read_rope_of_kind(fields, "full_attention", "rope_theta", 1e6, true);
}

/// Returns the number n for which every n-th layer sees all positions if layer_types is
/// absent. transformers 5 also writes the number as _sliding_window_pattern, but never
/// reads that field.
int64_t read_period(const ConfigFields& fields) {
  constexpr const char *kRead = "sliding_window_pattern",
                       *kWritten = "_sliding_window_pattern";
  const int64_t period = fields.integer(kRead, 1, kMaxLayers).value_or(6);
  const int64_t written = fields.integer(kWritten, 1, kMaxLayers).value_or(period);
  if (written == period || fields.find("layer_types") != nullptr) return period;
  fields.fail(kWritten,
              "= {} has no effect in transformers, which takes {} = {}; add "
              "layer_types, or give both the same number",
              written, kRead, period);
}

void refuse_if_on(const ConfigFields& fields, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const OrderedJson* value = fields.find(key);
    if (value != nullptr && !is_off(*value)) fields.refuse(key, *value);
  }
}

/// Reads the bound of scores or of logits. Returns 0 if the field is null, which means
/// that there is no bound.
double read_cap(const ConfigFields& fields, const char* key, double absent) {
  if (!fields.object().contains(key)) return absent;
  const auto cap = fields.number(key);
  if (cap && *cap <= 0.0) {
    fields.fail(key, "= {} must be above 0, or null for none", *cap);
  }
  return cap.value_or(0.0);
}

/// Gives the network what Gemma 2 and Gemma 3 have in common. Each branch has norms
/// before and behind it, which multiply by one plus their weight. The feed-forward is
/// GEGLU, the embedding is scaled, and every `period`-th layer sees all positions.
void change_gemma(const ConfigFields& fields, int64_t period, Network& network) {
  read_kinds_of_layers(
      fields, 4096, [&](int64_t layer) { return (layer + 1) % period == 0; }, network);
  read_attention_bias(fields, network);
  const auto scalar = static_cast<double>(
      fields.integer("query_pre_attn_scalar", 1, kMaxWidth).value_or(256));
  network.embedding.scale = std::sqrt(static_cast<double>(network.width));
  network.embedding.rounds_scale = true;
  std::get<LanguageHead>(network.head).norm.form = RmsForm::OnePlusWeight;
  for (const DecoderLayer& layer : layers_of(network)) {
    const auto norm = [&](const char* end) {
      return norm_like_last(network, layer.name + end);
    };
    layer.first.before = norm("input_layernorm");
    layer.first.after = norm("post_attention_layernorm");
    layer.second.before = norm("pre_feedforward_layernorm");
    layer.second.after = norm("post_feedforward_layernorm");
    layer.attention.scale = 1.0 / std::sqrt(scalar);
    layer.feed_forward.activation = Activation::GeluTanh;
  }
}

void change_gemma2(const ConfigFields& fields, Network& network) {
  refuse_if_on(fields, {"use_bidirectional_attention"});
  change_gemma(fields, 2, network);
  std::get<LanguageHead>(network.head).logits_cap =
      read_cap(fields, "final_logit_softcapping", 30.0);
  const double cap = read_cap(fields, "attn_logit_softcapping", 50.0);
  for (const DecoderLayer& layer : layers_of(network)) layer.attention.score_cap = cap;
}

void change_gemma3(const ConfigFields& fields, Network& network) {
  const RopeConfig sliding =
      read_rope_of_kind(fields, "sliding_attention", "rope_local_base_freq", 1e4, false);
  refuse_if_on(fields, {"attn_logit_softcapping", "final_logit_softcapping",
                        "use_bidirectional_attention"});
  change_gemma(fields, read_period(fields), network);
  add_norms_of_heads(network);
  for (const DecoderLayer& layer : layers_of(network)) {
    if (layer.attention.window) layer.attention.rotation->rope = sliding;
  }
}

/// Returns the fields that Gemma 2 and Gemma 3 have in common.
DecoderFields gemma_fields() {
  return {.more =
              "attention_bias attn_logit_softcapping final_logit_softcapping "
              "query_pre_attn_scalar sliding_window use_bidirectional_attention",
          .nullable =
              "attention_dropout attn_logit_softcapping final_logit_softcapping "
              "sliding_window use_bidirectional_attention",
          .absent = {.num_key_value_heads = 4,
                     .head_dim = 256,
                     .tie_word_embeddings = true,
                     .pad_token_id = 0},
          .tokenizer = "GemmaTokenizer",
          .activation = "hidden_activation",
          .activations = {"gelu_pytorch_tanh", "gelu_new"},
          .kinds_of_layers = true,
          .change = change_gemma2};
}

}  // namespace

/// Returns Gemma 2 (Gemma Team 2024, arXiv 2408.00118). It has a window in every second
/// layer, and bounds of scores and of logits.
Family gemma2_family() {
  return decoder_family("gemma2", "Gemma 2", "Gemma2ForCausalLM", gemma_fields());
}

/// Returns Gemma 3 for text (Gemma Team 2025, arXiv 2503.19786). It has norms of each
/// head, and a window and another rotation in five of six layers.
Family gemma3_family() {
  DecoderFields fields = gemma_fields();
  fields.more += " rope_local_base_freq sliding_window_pattern _sliding_window_pattern";
  fields.nullable += " rope_local_base_freq _sliding_window_pattern";
  fields.rotation = read_full_rotation;
  fields.change = change_gemma3;
  return decoder_family("gemma3_text", "Gemma 3 for text", "Gemma3ForCausalLM", fields);
}

}  // namespace longhaul::families
