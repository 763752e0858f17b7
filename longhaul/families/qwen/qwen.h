#pragma once

#include "longhaul/families/decoder.h"

namespace longhaul::families {

/// Qwen2 (Yang et al. 2024, arXiv 2407.10671): biases of queries, keys and values.
const Family& qwen2_family();
/// Qwen3 (Yang et al. 2025, arXiv 2505.09388): norms of each head of queries and keys.
const Family& qwen3_family();

}  // namespace longhaul::families
