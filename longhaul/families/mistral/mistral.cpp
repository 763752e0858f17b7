#include "longhaul/families/decoder.h"

#include "longhaul/families/limits.h"

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

/// Mistral 7B (Jiang et al. 2023, arXiv 2310.06825), with attention within a window.
class MistralFamily : public DecoderFamily {
 public:
  MistralFamily()
      : DecoderFamily("mistral", "Mistral 7B and models of the same form",
                      "MistralForCausalLM",
                      {.more = "sliding_window", .nullable = "head_dim sliding_window"}) {
  }

 private:
  void read_more(const ConfigFields& fields, DecoderSettings& s) const override {
    check_mistral_is_whole(fields);
    s.sliding_window = fields.integer("sliding_window", 1, kMaxPositions);
  }
};

}  // namespace

const Family& mistral_family() {
  static const MistralFamily family;
  return family;
}

}  // namespace longhaul::families
