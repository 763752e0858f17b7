#include "longhaul/imports/bert_names.h"

#include <string_view>
#include <utility>

namespace longhaul::imports {

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

}  // namespace longhaul::imports
