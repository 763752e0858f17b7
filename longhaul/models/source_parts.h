#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "longhaul/families/network.h"

// The functions of the evaluation in source_model.h: plain tensor functions in fp32, by
// the formulas of transformers. Shapes: B sequences of T tokens, D head dim.

namespace longhaul::models::source {

/// Rotates the first `turned` features of each head by the angles of positions [T] int64:
/// x [B, heads, T, D] -> [B, heads, T, D] (modeling_rope_utils.py).
at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions,
                   const RopeConfig& rope, int64_t turned);

/// Returns softmax(scale q k^T) v: q [B, Hq, T, D], k and v [B, Hkv, T, D] -> [B T, Hq
/// D]. A token sees the tokens before it within the window, or all tokens where the
/// attention is not causal.
at::Tensor attended(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const families::Attention& attention);

/// Applies the activation element by element.
at::Tensor activated(const at::Tensor& x, Activation activation);

/// Returns the LayerNorm over the last dim.
at::Tensor layer_normed(const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& bias, double eps);

/// Returns the experts of each token, [B T, k]. These are `known` [T, k] of the last
/// sequence where the logits [B T, E] of that sequence differ so little that a router of
/// this roundoff may have chosen so. Elsewhere, and where `known` is undefined or has
/// another number of experts for each token, they are `right`.
at::Tensor settled_choice(const at::Tensor& right, const at::Tensor& logits,
                          const at::Tensor& known, double roundoff);

}  // namespace longhaul::models::source
