#pragma once

#include <vector>

#include "longhaul/format/shard_plan.h"

namespace longhaul::models {

/// How Llama splits over the ranks of tensor parallelism (Shoeybi et al., "Megatron-LM"):
/// first projections by rows, second ones by columns, both ends by vocabulary. Norms have
/// no row.
const std::vector<ShardRule>& llama_sharding();

}  // namespace longhaul::models
