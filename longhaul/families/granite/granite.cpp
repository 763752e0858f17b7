
#include "longhaul/families/decoder.h"

namespace longhaul::families {
namespace {

/// Reads a factor or divisor, which must be above 0.
double read_multiplier(const ConfigFields& fields, const char* key) {
  const double value = fields.number(key).value_or(1.0);
  if (value <= 0.0) {
    fields.fail(key, "= {} is not available: it must be above 0", value);
  }
  return value;
}

/// Granite 3 (IBM 2024, "Granite 3.0 Language Models"), which is Llama's form with
/// factors of embedding, scores and branches, and a divisor of the logits.
class GraniteFamily : public DecoderFamily {
 public:
  GraniteFamily()
      : DecoderFamily("granite", "Granite 3", "GraniteForCausalLM",
                      {.more = "attention_bias attention_multiplier embedding_multiplier "
                               "logits_scaling mlp_bias residual_multiplier",
                       .nullable = "num_key_value_heads"}) {}

 private:
  void read_more(const ConfigFields& fields, DecoderSettings& s) const override {
    read_attention_bias(fields, s);
    s.mlp_biases = fields.boolean("mlp_bias").value_or(false);
    s.attention_scale = read_multiplier(fields, "attention_multiplier");
    s.embedding_scale = read_multiplier(fields, "embedding_multiplier");
    s.residual_scale = read_multiplier(fields, "residual_multiplier");
    s.logits_divisor = read_multiplier(fields, "logits_scaling");
  }
};

}  // namespace

const Family& granite_family() {
  static const GraniteFamily family;
  return family;
}

}  // namespace longhaul::families
