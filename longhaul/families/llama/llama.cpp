#include "longhaul/families/decoder.h"

#include "longhaul/families/plausible_sizes.h"

namespace longhaul::families {
namespace {

/// Checks the fields of which the program supports only one value.
void check_llama(const ConfigFields& fields, Network& /*network*/) {
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

}  // namespace

/// Returns Llama 1 to 3.1 (Touvron et al. 2023; Grattafiori et al. 2024). The first
/// converted Llamas spelt the name with a capital A.
Family llama_family() {
  return decoder_family(
      "llama", "Llama 1, 2, 3, 3.1 and models of the same form",
      "LlamaForCausalLM LLaMAForCausalLM",
      {.more = "attention_bias mlp_bias pretraining_tp sliding_window",
       .nullable = "attention_dropout head_dim num_key_value_heads pretraining_tp "
                   "sliding_window",
       .change = check_llama});
}

}  // namespace longhaul::families
