#include <algorithm>

#include "longhaul/families/decoder.h"

namespace longhaul::families {
namespace {

// transformers 5 gives the outer rope_theta to full attention alone. A base of 0 is
// filled in by read_bases, once the layers are known.
RopeConfig read_full_olmo3(const ConfigFields& fields) {
  return read_rope_of_kind(fields, "full_attention", "rope_theta", 0.0, true);
}

/// Gives layers without a base of their own the base that transformers 5 takes. Throws
/// InputError if transformers 4, in which all layers have one base, takes another one.
/// `windows` is the number of layers with a window, `layers` that of all layers.
void read_bases(const ConfigFields& fields, int64_t windows, int64_t layers, double& full,
                double& sliding) {
  constexpr double kTheta = 5e5;
  const double given = std::max(full, sliding);
  const bool misses =
      (full == 0.0 && windows < layers) || (sliding == 0.0 && windows > 0);
  if (given == 0.0 && fields.find("rope_parameters") == nullptr) {
    fields.fail("rope_theta",
                "is missing, in rope_parameters too, and no default is safe "
                "(transformers 4.57 takes 10000, transformers 5 takes {}); add it",
                kTheta);
  }
  if (misses && given != 0.0 && given != kTheta) {
    const char* const other = full == 0.0 ? "full_attention" : "sliding_attention";
    const char* const own = full == 0.0 ? "sliding_attention" : "full_attention";
    fields.fail(fields.find("rope_theta")        ? "rope_theta"
                : fields.find("rope_parameters") ? "rope_parameters"
                                                 : "rope_scaling",
                "gives \"{0}\" the base {1}, and \"{2}\" none: transformers 5 takes "
                "{3} for \"{2}\" ({4} of {5} layers), and transformers 4.57 one "
                "rope_theta for all layers. Write the base of each, for example "
                "rope_parameters = {{\"full_attention\": {{\"rope_theta\": {1}}}, "
                "\"sliding_attention\": {{\"rope_theta\": {1}}}}}",
                own, given, other, kTheta, full == 0.0 ? layers - windows : windows,
                layers);
  }
  if (full == 0.0) full = kTheta;
  if (sliding == 0.0) sliding = kTheta;
}

void read_kinds(const ConfigFields& fields, Network& network) {
  RopeConfig sliding = read_rope_of_kind(fields, "sliding_attention", "", 0.0, false);
  read_kinds_of_layers(
      fields, 4096, [](int64_t layer) { return (layer + 1) % 4 == 0; }, network);
  const std::vector<DecoderLayer> layers = layers_of(network);
  RopeConfig full = layers.front().attention.rotation->rope;
  const auto windows = std::ranges::count_if(layers, [](const DecoderLayer& layer) {
    return layer.attention.window.has_value();
  });
  read_bases(fields, windows, std::ssize(layers), full.theta, sliding.theta);
  for (const DecoderLayer& layer : layers) {
    layer.attention.rotation->rope = layer.attention.window ? sliding : full;
  }
}

void change_olmo2(const ConfigFields& fields, Network& network) {
  read_attention_bias(fields, network);
  std::get<LanguageHead>(network.head).norm.form = RmsForm::WeightBeforeCast;
  add_norms_of_heads(network, /*over_all_heads=*/true);
  for (const DecoderLayer& layer : layers_of(network)) {
    layer.first.before.reset();
    layer.first.after = norm_like_last(network, layer.name + "post_attention_layernorm");
    layer.second.before.reset();
    layer.second.after =
        norm_like_last(network, layer.name + "post_feedforward_layernorm");
  }
}

void change_olmo3(const ConfigFields& fields, Network& network) {
  change_olmo2(fields, network);
  read_kinds(fields, network);
}

}  // namespace

/// Returns OLMo 2 (OLMo et al. 2024, arXiv 2501.00656), which has norms behind each
/// branch only, and norms of queries and keys over all heads.
Family olmo2_family() {
  return decoder_family("olmo2", "OLMo 2", "Olmo2ForCausalLM",
                        {.more = "attention_bias",
                         .nullable = "num_key_value_heads",
                         .absent = {.pad_token_id = 1},
                         .tokenizer = kReadsTokenizerFile,
                         .change = change_olmo2});
}

/// Returns OLMo 3, which has a window in three of four layers.
Family olmo3_family() {
  return decoder_family("olmo3", "OLMo 3", "Olmo3ForCausalLM",
                        {.more = "attention_bias sliding_window",
                         .nullable = "num_key_value_heads sliding_window",
                         .absent = {.pad_token_id = 1},
                         .tokenizer = kReadsTokenizerFile,
                         .kinds_of_layers = true,
                         .rotation = read_full_olmo3,
                         .change = change_olmo3});
}

}  // namespace longhaul::families
