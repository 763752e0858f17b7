#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/families/rope.h"
#include "longhaul/ops/attention/heads.h"

namespace longhaul::ops {

/// Cosines and sines of every position and frequency, fp32 [positions, R / 2]: R features
/// of each head are rotated.
struct RopeTable {
  at::Tensor cos;
  at::Tensor sin;
};

/// The table of a model (Su et al., "RoFormer"; llama3 scaling as in the Llama 3.1 model
/// code: wavelengths beyond original / low_freq_factor are divided by `factor`, those
/// below original / high_freq_factor are kept, between them a linear blend; YaRN, whose
/// attention factor is part of the table, as in transformers). Angles in fp64.
RopeTable make_rope_table(const RopeConfig& rope, int64_t rotated, int64_t positions,
                          at::Device device);

/// Rotates pairs (i, i + R/2) of every head's first R features by the angle of its
/// position, fp32 inside; the others stay as they are. x [T, heads, D], R <= D, positions
/// [T] int32; the result has x's dtype.
at::Tensor rope(const at::Tensor& x, const RopeTable& table, const at::Tensor& positions,
                bool fused);

/// q and k rotated in the memory in which they lie, which nobody else may need, on every
/// device; v as it is. The gradients lie as q, k and v do (ColumnLayout), so those of a
/// joint product are one matrix.
Heads rope_in_place(const Heads& heads, const RopeTable& table,
                    const at::Tensor& positions);

}  // namespace longhaul::ops
