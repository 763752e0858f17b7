#include <fmt/format.h>

#include "longhaul/families/decoder.h"

namespace longhaul::families {
namespace {

/// A number above 0 that something is multiplied with or divided by.
double read_multiplier(const ConfigFields& fields, const char* key) {
  const double value = fields.number(key).value_or(1.0);
  if (value <= 0.0) {
    fields.fail(key, fmt::format("= {} is not available: it must be above 0", value));
  }
  return value;
}

/// Granite 3 (IBM 2024, "Granite 3.0 Language Models"): Llama's form with numbers that
/// embedding, scores, branches and logits are multiplied with or divided by.
class GraniteFamily : public DecoderFamily {
 public:
  GraniteFamily() : DecoderFamily("granite", "Granite 3", {"GraniteForCausalLM"}) {}

 private:
  std::vector<std::string> more_fields() const override {
    return {"attention_bias",
            "attention_multiplier",
            "embedding_multiplier",
            "logits_scaling",
            "mlp_bias",
            "residual_multiplier"};
  }

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
