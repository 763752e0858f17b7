#include <algorithm>

#include "longhaul/families/family.h"

namespace longhaul::families {

// Each function is defined in the folder of its family.
const Family& bert_family();
const Family& gemma2_family();
const Family& gemma3_family();
const Family& gpt2_family();
const Family& gpt_neox_family();
const Family& granite_family();
const Family& llama_family();
const Family& mistral_family();
const Family& mixtral_family();
const Family& olmo2_family();
const Family& olmo3_family();
const Family& phi3_family();
const Family& qwen2_family();
const Family& qwen3_family();
const Family& qwen3_moe_family();
const Family& smollm3_family();

const std::vector<const Family*>& all_families() {
  static const std::vector<const Family*> families = {
      &llama_family(),     &gpt2_family(),    &qwen2_family(),    &qwen3_family(),
      &qwen3_moe_family(), &mistral_family(), &mixtral_family(),  &gemma2_family(),
      &gemma3_family(),    &olmo2_family(),   &olmo3_family(),    &granite_family(),
      &smollm3_family(),   &phi3_family(),    &gpt_neox_family(), &bert_family()};
  return families;
}

const Family* find_family(std::string_view model_type) {
  const auto& families = all_families();
  const auto found = std::ranges::find(families, model_type, &Family::model_type);
  return found == families.end() ? nullptr : *found;
}

}  // namespace longhaul::families
