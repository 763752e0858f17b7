#include <fmt/format.h>

#include <algorithm>

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
             .nullable = version == 2 ? "num_key_value_heads"
                                      : "num_key_value_heads sliding_window",
             .absent = {.pad_token_id = 1},
             .kinds_of_layers = version == 3}),
        version_(version) {}

 private:
  void read_rotation(const ConfigFields& fields, DecoderSettings& s) const override {
    if (version_ == 2) return DecoderFamily::read_rotation(fields, s);
    // transformers 5 gives the outer rope_theta to full attention alone. A base of 0 is
    // filled in by read_bases, once the layers are known.
    s.rope = read_rope_of_kind(fields, "full_attention", "rope_theta", 0.0, true);
    s.sliding_rope = read_rope_of_kind(fields, "sliding_attention", "", 0.0, false);
  }

  /// Gives layers without a base of their own the base that transformers 5 takes. Throws
  /// InputError where transformers 4, whose layers have one base, reads another one.
  static void read_bases(const ConfigFields& fields, DecoderSettings& s) {
    constexpr double kTheta = 5e5;
    double &full = s.rope.theta, &sliding = s.sliding_rope->theta;
    const double given = std::max(full, sliding);
    const auto windows = std::ranges::count(s.full_layers, false);
    const bool misses = (full == 0.0 && windows < std::ssize(s.full_layers)) ||
                        (sliding == 0.0 && windows > 0);
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
                  own, given, other, kTheta,
                  full == 0.0 ? std::ssize(s.full_layers) - windows : windows,
                  s.full_layers.size());
    }
    if (full == 0.0) full = kTheta;
    if (sliding == 0.0) sliding = kTheta;
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
    read_bases(fields, s);
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
