#include <array>

#include "longhaul/models/bert/bert.h"
#include "longhaul/models/gpt2/gpt2.h"
#include "longhaul/models/gpt_neox/gpt_neox.h"
#include "longhaul/models/llama/llama.h"
#include "longhaul/models/mistral/mistral.h"
#include "longhaul/models/qwen/qwen.h"
#include "longhaul/models/registry.h"

namespace longhaul::models {

const ModelFamily* find_model_family(std::string_view model_type) {
  static const std::array families = {
      ModelFamily{"gpt2", make_gpt2, make_gpt2_source},
      ModelFamily{"llama", make_llama, make_llama_source},
      ModelFamily{"qwen2", make_qwen, make_qwen_source},
      ModelFamily{"qwen3", make_qwen, make_qwen_source},
      ModelFamily{"mistral", make_mistral, make_mistral_source},
      ModelFamily{"gpt_neox", make_gpt_neox, make_gpt_neox_source},
      ModelFamily{"bert", make_bert, make_bert_source}};
  for (const ModelFamily& family : families) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

}  // namespace longhaul::models
