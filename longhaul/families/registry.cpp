#include <algorithm>

#include "longhaul/families/family.h"

namespace longhaul::families {

// Each function is defined in the folder of its family.
Family bert_family();
Family gemma2_family();
Family gemma3_family();
Family gpt2_family();
Family gpt_neox_family();
Family granite_family();
Family llama_family();
Family mistral_family();
Family mixtral_family();
Family olmo2_family();
Family olmo3_family();
Family phi3_family();
Family qwen2_family();
Family qwen3_family();
Family qwen3_moe_family();
Family smollm3_family();

const std::vector<Family>& all_families() {
  static const std::vector<Family> families = {
      llama_family(),     gpt2_family(),    qwen2_family(),    qwen3_family(),
      qwen3_moe_family(), mistral_family(), mixtral_family(),  gemma2_family(),
      gemma3_family(),    olmo2_family(),   olmo3_family(),    granite_family(),
      smollm3_family(),   phi3_family(),    gpt_neox_family(), bert_family()};
  return families;
}

const Family* find_family(std::string_view model_type) {
  const auto& families = all_families();
  const auto found = std::ranges::find(families, model_type, &Family::model_type);
  return found == families.end() ? nullptr : &*found;
}

}  // namespace longhaul::families
