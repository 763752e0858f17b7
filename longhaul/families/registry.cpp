#include <algorithm>

#include "longhaul/families/bert/bert.h"
#include "longhaul/families/family.h"
#include "longhaul/families/gpt2/gpt2.h"
#include "longhaul/families/gpt_neox/gpt_neox.h"
#include "longhaul/families/llama/llama.h"
#include "longhaul/families/mistral/mistral.h"
#include "longhaul/families/qwen/qwen.h"

namespace longhaul::families {

const std::vector<const Family*>& all_families() {
  static const std::vector<const Family*> families = {
      &llama_family(),   &gpt2_family(),     &qwen2_family(), &qwen3_family(),
      &mistral_family(), &gpt_neox_family(), &bert_family()};
  return families;
}

const Family* find_family(std::string_view model_type) {
  const auto& families = all_families();
  const auto found = std::ranges::find(families, model_type,
                                       [](const Family* f) { return f->model_type(); });
  return found == families.end() ? nullptr : *found;
}

}  // namespace longhaul::families
