
#include "longhaul/families/decoder.h"

namespace longhaul::families {
namespace {

/// Reads a factor or divisor, which must be above 0.
double read_multiplier(const ConfigFields& fields, const char* key) {
  const double value = fields.number(key).value_or(1.0);
  if (value <= 0.0) fields.fail(key, "= {} is not available: it must be above 0", value);
  return value;
}

void change_granite(const ConfigFields& fields, Network& network) {
  read_attention_bias(fields, network);
  read_mlp_bias(fields, network);
  const double scores = read_multiplier(fields, "attention_multiplier");
  network.embedding.scale = read_multiplier(fields, "embedding_multiplier");
  const double residual = read_multiplier(fields, "residual_multiplier");
  std::get<LanguageHead>(network.head).logits_divisor =
      read_multiplier(fields, "logits_scaling");
  for (const DecoderLayer& layer : layers_of(network)) {
    layer.attention.scale = scores;
    layer.first.scale = layer.second.scale = residual;
  }
}

}  // namespace

/// Returns Granite 3 (IBM 2024, "Granite 3.0 Language Models"), which is Llama's form
/// with factors of embedding, scores and branches, and a divisor of the logits.
Family granite_family() {
  return decoder_family(
      "granite", "Granite 3", "GraniteForCausalLM",
      {.more = "attention_bias attention_multiplier embedding_multiplier logits_scaling "
               "mlp_bias residual_multiplier",
       .nullable = "num_key_value_heads",
       .tokenizer = kReadsTokenizerFile,
       .change = change_granite});
}

}  // namespace longhaul::families
