#include "longhaul/models/llama/sharding.h"

namespace longhaul::models {

const std::vector<ShardRule>& llama_sharding() {
  using Unit = ShardUnit;
  static const std::vector<ShardRule> rules = {
      {"*.self_attn.q_proj.weight", 0, Unit::QueryHeads},
      {"*.self_attn.k_proj.weight", 0, Unit::KeyHeads},
      {"*.self_attn.v_proj.weight", 0, Unit::KeyHeads},
      {"*.self_attn.o_proj.weight", 1, Unit::QueryHeads},
      {"*.mlp.gate_proj.weight", 0, Unit::Elements},
      {"*.mlp.up_proj.weight", 0, Unit::Elements},
      {"*.mlp.down_proj.weight", 1, Unit::Elements},
      {"model.embed_tokens.weight", 0, Unit::Vocabulary},
      {"lm_head.weight", 0, Unit::Vocabulary},
  };
  return rules;
}

}  // namespace longhaul::models
