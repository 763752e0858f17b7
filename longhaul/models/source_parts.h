#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "longhaul/families/network.h"

// The functions of a second evaluation (source_model.h): plain tensor functions
// in fp32, by the formulas of transformers. Shapes: B sequences of T tokens, D
// head dim.

namespace longhaul::models::source {

/// The first `turned` features of each head turned by the angles of positions
/// [T] int64: x [B, heads, T, D] -> the same (modeling_rope_utils.py).
at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions,
                   const RopeConfig& rope, int64_t turned);

/// Causal softmax(q k^T / sqrt(D)) v, in which a token sees `window` positions
/// at most: q [B, Hq, T, D], k and v [B, Hkv, T, D] -> [B T, Hq D].
at::Tensor attended(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    std::optional<int64_t> window = {});

/// softmax(q k^T / sqrt(D)) v, in which a token sees all of its sequence; as
/// attended.
at::Tensor attended_both_ways(const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v);

/// Element by element.
at::Tensor activated(const at::Tensor& x, families::Activation activation);

/// LayerNorm over the last dim.
at::Tensor layer_normed(const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& bias, double eps);

}  // namespace longhaul::models::source
