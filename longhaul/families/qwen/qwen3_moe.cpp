#include <algorithm>
#include <set>

#include "longhaul/families/expert_fields.h"
#include "longhaul/families/plausible_sizes.h"

namespace longhaul::families {
namespace {

/// Returns which layers have a plain feed-forward. Every step-th layer has experts unless
/// a list names the layer.
std::vector<bool> read_dense_layers(const ConfigFields& fields, int64_t layers) {
  const int64_t step =
      fields.integer("decoder_sparse_step", 1, kMaxPositions).value_or(1);
  std::set<int64_t> listed;
  if (const OrderedJson* list = fields.find("mlp_only_layers")) {
    const auto whole = [](const OrderedJson& item) { return item.is_number_integer(); };
    if (!list->is_array() || !std::ranges::all_of(*list, whole)) {
      fields.fail("mlp_only_layers", "expected a list of numbers of layers, found {}",
                  json_text(*list).substr(0, 80));
    }
    for (const OrderedJson& item : *list) listed.insert(item.get<int64_t>());
  }
  std::vector<bool> dense;
  for (int64_t i = 0; i < layers; ++i) {
    dense.push_back((i + 1) % step != 0 || listed.contains(i));
  }
  return dense;
}

void change_qwen3_moe(const ConfigFields& fields, Network& network) {
  // Without this field sliding_window and max_window_layers have no effect.
  fields.refuse_true({"use_sliding_window"}, "is not available yet");
  read_attention_bias(fields, network);
  add_norms_of_heads(network);
  ExpertSettings experts = read_experts(
      fields, {.number_field = "num_experts", .experts = 128, .top_k = 8}, network);
  experts.intermediate_size =
      fields.required_integer("moe_intermediate_size", 1, kMaxWidth);
  experts.normalised = fields.boolean("norm_topk_prob").value_or(false);
  const std::vector<DecoderLayer> layers = layers_of(network);
  const std::vector<bool> dense = read_dense_layers(fields, std::ssize(layers));
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!dense[i]) put_experts(experts, layers[i]);
  }
}

}  // namespace

/// Returns Qwen3-MoE (Yang et al. 2025, arXiv 2505.09388), which is Qwen3's form with
/// mixtures of experts.
Family qwen3_moe_family() {
  return decoder_family(
      "qwen3_moe", "Qwen3 30B-A3B, 235B-A22B", "Qwen3MoeForCausalLM",
      {.more = fmt::format(
           "{} attention_bias decoder_sparse_step max_window_layers mlp_only_layers "
           "moe_intermediate_size norm_topk_prob sliding_window use_sliding_window",
           kExpertFields),
       .nullable = "max_window_layers mlp_only_layers sliding_window",
       .absent = {.num_key_value_heads = 4},
       .tokenizer = "Qwen2Tokenizer",
       .change = change_qwen3_moe});
}

}  // namespace longhaul::families
