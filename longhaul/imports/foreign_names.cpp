#include "longhaul/imports/foreign_names.h"

#include <string_view>
#include <utility>

namespace longhaul::imports {
namespace {

using Renamed = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kMegatronLayers = "language_model.encoder.layers.";

constexpr Renamed kWhole[] = {
    {"language_model.embedding.word_embeddings.weight", "model.embed_tokens.weight"},
    {"language_model.encoder.final_layernorm.weight", "model.norm.weight"},
    {"language_model.output_layer.weight", "lm_head.weight"},
};

// The parts of a name that follow the number of the layer.
constexpr Renamed kInLayers[] = {
    {".self_attention.query.weight", ".self_attn.qkv_proj.weight_q"},
    {".self_attention.dense.weight", ".self_attn.o_proj.weight"},
    {".self_attention.", ".self_attn."},
    {".mlp.dense_h_to_4h.weight", ".mlp.gate_up_proj.weight"},
    {".mlp.dense_4h_to_h.weight", ".mlp.down_proj.weight"},
};

}  // namespace

std::string hf_bert_name(std::string name) {
  if (name.ends_with("embeddings.position_ids") ||
      name.ends_with("embeddings.token_type_ids")) {
    return {};
  }
  constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
      {"LayerNorm.gamma", "LayerNorm.weight"},
      {"LayerNorm.beta", "LayerNorm.bias"},
      {"dense_act.weight", "dense.weight"},
      {"dense_act.bias", "dense.bias"},
  };
  for (const auto& [old_end, new_end] : kRenamed) {
    if (name.ends_with(old_end)) {
      name.replace(name.size() - old_end.size(), old_end.size(), new_end);
    }
  }
  return name;
}

std::string nxd_llama_name(std::string name) {
  for (const auto& [theirs, ours] : kWhole) {
    if (name == theirs) return std::string(ours);
  }
  if (!name.starts_with(kMegatronLayers)) return name;
  name.replace(0, kMegatronLayers.size(), "model.layers.");
  const size_t number = std::string_view("model.layers.").size();
  const size_t rest = name.find('.', number);
  for (const auto& [theirs, ours] : kInLayers) {
    if (rest != std::string::npos && name.compare(rest, theirs.size(), theirs) == 0) {
      return name.replace(rest, theirs.size(), ours);
    }
  }
  return name;
}

}  // namespace longhaul::imports
