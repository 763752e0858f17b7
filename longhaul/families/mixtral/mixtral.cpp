#include "longhaul/families/expert_fields.h"

namespace longhaul::families {
namespace {

void change_mixtral(const ConfigFields& fields, Network& network) {
  if (!fields.object().contains("sliding_window")) {
    fields.fail("sliding_window",
                "is missing, and no default is safe (transformers 4.36.0 takes 4096, "
                "later versions none); add it, or set model.override.sliding_window");
  }
  read_window(fields, network);
  const double noise = fields.number("router_jitter_noise").value_or(0.0);
  if (noise > 0.0) {
    fields.fail("router_jitter_noise", "= {} is not available yet; only 0.0 is", noise);
  }
  ExpertSettings experts = read_experts(
      fields, {.number_field = "num_local_experts", .experts = 8, .top_k = 2}, network);
  experts.layer = "block_sparse_moe.";
  experts.gate = "w1";
  experts.up = "w3";
  experts.down = "w2";
  for (const DecoderLayer& layer : layers_of(network)) {
    experts.intermediate_size = layer.feed_forward.up.out;
    put_experts(experts, layer);
  }
  // Files that hold all experts together were written by transformers 5, which calls the
  // router mlp.gate.
  network.old_endings = {{".mlp.gate.weight", ".block_sparse_moe.gate.weight"}};
}

}  // namespace

/// Returns Mixtral (Jiang et al. 2024, arXiv 2401.04088), which is Mistral's form with a
/// mixture of experts in each layer.
Family mixtral_family() {
  return decoder_family(
      "mixtral", "Mixtral 8x7B, 8x22B", "MixtralForCausalLM",
      {.more = fmt::format("{} router_jitter_noise sliding_window", kExpertFields),
       .nullable = "head_dim sliding_window",
       .absent = {.num_key_value_heads = 8, .rope_theta = 1e6},
       .tokenizer = kReadsTokenizerFile,
       .change = change_mixtral});
}

}  // namespace longhaul::families
