#include "longhaul/families/expert_fields.h"
#include "longhaul/families/limits.h"

namespace longhaul::families {
namespace {

/// Mixtral (Jiang et al. 2024, arXiv 2401.04088), which is Mistral's form with a mixture
/// of experts in each layer.
class MixtralFamily : public DecoderFamily {
 public:
  MixtralFamily()
      : DecoderFamily(
            "mixtral", "Mixtral 8x7B, 8x22B", "MixtralForCausalLM",
            {.more = fmt::format("{} router_jitter_noise sliding_window", kExpertFields),
             .nullable = "head_dim sliding_window",
             .absent = {.num_key_value_heads = 8}}) {}

 private:
  void read_rotation(const ConfigFields& fields, DecoderSettings& s) const override {
    s.rope = read_rope(fields, 1e6);
  }

  void read_more(const ConfigFields& fields, DecoderSettings& s) const override {
    if (!fields.object().contains("sliding_window")) {
      fields.fail("sliding_window",
                  "is missing, and no default is safe (transformers 4.36.0 takes 4096, "
                  "later versions none); add it, or set model.override.sliding_window");
    }
    s.sliding_window = fields.integer("sliding_window", 1, kMaxPositions);
    const double noise = fields.number("router_jitter_noise").value_or(0.0);
    if (noise > 0.0) {
      fields.fail("router_jitter_noise", "= {} is not available yet; only 0.0 is", noise);
    }
    ExpertSettings experts = read_experts(
        fields, {.number_field = "num_local_experts", .experts = 8, .top_k = 2},
        s.num_hidden_layers);
    experts.intermediate_size = s.intermediate_size;
    experts.layer = "block_sparse_moe.";
    experts.gate = "w1";
    experts.up = "w3";
    experts.down = "w2";
    s.experts = experts;
  }
};

}  // namespace

const Family& mixtral_family() {
  static const MixtralFamily family;
  return family;
}

}  // namespace longhaul::families
