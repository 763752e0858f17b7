#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/families/rope.h"

namespace longhaul::models {

/// x [B, heads, T, D] turned by the angles of positions [T] int64, by the formulas of
/// modeling_rope_utils.py of transformers; for SourceModel.
at::Tensor source_rope(const at::Tensor& x, const at::Tensor& positions,
                       const RopeConfig& rope);
/// Causal attention of q [B, Hq, T, D] over k and v [B, Hkv, T, D]: [B T, Hq D].
at::Tensor source_attention(const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v);

}  // namespace longhaul::models
