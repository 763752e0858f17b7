#include "longhaul/families/decoder.h"

#include "longhaul/families/limits.h"

namespace longhaul::families {
namespace {

/// Checks the fields that must hold the one value that the program computes with.
void check_llama_neutral(const ConfigFields& fields) {
  fields.refuse_true({"attention_bias", "mlp_bias"},
                     "is not available yet: this program's Llama has no biases");
  const auto slices = fields.integer("pretraining_tp", 1, kMaxWidth);
  if (slices.value_or(1) != 1) {
    fields.fail("pretraining_tp",
                "= {} makes transformers compute each product in {} slices, which "
                "changes the rounding only; set model.override.pretraining_tp = 1 to "
                "train the same model without them",
                *slices, *slices);
  }
  const OrderedJson* window = fields.find("sliding_window");
  if (window && !is_off(*window)) fields.refuse("sliding_window", *window);
}

/// Llama 1 to 3.1 (Touvron et al. 2023; Grattafiori et al. 2024).
class LlamaFamily : public DecoderFamily {
 public:
  // The first converted Llamas spelt the name with a capital A.
  LlamaFamily()
      : DecoderFamily("llama", "Llama 1, 2, 3, 3.1 and models of the same form",
                      "LlamaForCausalLM LLaMAForCausalLM",
                      {.more = "attention_bias mlp_bias pretraining_tp sliding_window",
                       .nullable = "attention_dropout head_dim num_key_value_heads "
                                   "pretraining_tp sliding_window"}) {}

 private:
  void read_more(const ConfigFields& fields, DecoderSettings& /*s*/) const override {
    check_llama_neutral(fields);
  }
};

}  // namespace

const Family& llama_family() {
  static const LlamaFamily family;
  return family;
}

}  // namespace longhaul::families
