#include <fmt/format.h>

#include "longhaul/families/decoder.h"

namespace longhaul::families {
namespace {

/// OLMo 2 (OLMo et al. 2024, arXiv 2501.00656) has norms behind each branch only, and
/// norms of queries and keys over all heads. OLMo 3 has a window in three of four layers.
class OlmoFamily : public DecoderFamily {
 public:
  explicit OlmoFamily(int version)
      : DecoderFamily(
            fmt::format("olmo{}", version), fmt::format("OLMo {}", version),
            fmt::format("Olmo{}ForCausalLM", version),
            {.more = version == 2 ? "attention_bias" : "attention_bias sliding_window",
             .absent = {.pad_token_id = 1},
             .kinds_of_layers = version == 3}),
        version_(version) {}

 private:
  void read_rotation(const ConfigFields& fields, DecoderSettings& s) const override {
    if (version_ == 2) return DecoderFamily::read_rotation(fields, s);
    constexpr double kTheta = 5e5;
    s.rope = read_rope_of_kind(fields, "full_attention", "rope_theta", kTheta, true);
    // transformers gives the outer rope_theta to full attention alone.
    s.sliding_rope = read_rope_of_kind(fields, "sliding_attention", "", kTheta, false);
  }

  void read_more(const ConfigFields& fields, DecoderSettings& s) const override {
    read_attention_bias(fields, s);
    s.wide_norms = true;
    s.norm_form = RmsForm::WeightBeforeCast;
    s.norms_before = false;
    s.norms_after = true;
    if (version_ == 2) return;
    read_kinds_of_layers(
        fields, 4096, [](int64_t layer) { return (layer + 1) % 4 == 0; }, s);
  }

  int version_;
};

}  // namespace

const Family& olmo2_family() {
  static const OlmoFamily family(2);
  return family;
}

const Family& olmo3_family() {
  static const OlmoFamily family(3);
  return family;
}

}  // namespace longhaul::families
