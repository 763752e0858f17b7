#include "longhaul/families/decoder.h"

namespace longhaul::families {
namespace {

/// Refuses absent fields for which transformers has other values than for null.
void check_mistral_is_whole(const ConfigFields& fields) {
  for (const auto& [key, theirs] :
       {std::pair("num_key_value_heads", 8), std::pair("sliding_window", 4096)}) {
    if (fields.object().contains(key)) continue;
    fields.fail(key,
                "is missing, and no default is safe (transformers takes {}); add it, or "
                "set model.override.{}",
                theirs, key);
  }
}

void change_mistral(const ConfigFields& fields, Network& network) {
  check_mistral_is_whole(fields);
  read_window(fields, network);
}

}  // namespace

/// Returns Mistral 7B (Jiang et al. 2023, arXiv 2310.06825), with attention within a
/// window.
Family mistral_family() {
  return decoder_family("mistral", "Mistral 7B and models of the same form",
                        "MistralForCausalLM",
                        {.more = "sliding_window",
                         .nullable = "head_dim sliding_window",
                         .tokenizer = kReadsTokenizerFile,
                         .change = change_mistral});
}

}  // namespace longhaul::families
