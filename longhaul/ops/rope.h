#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/families/layers/rotation.h"
#include "longhaul/ops/attention/heads.h"

namespace longhaul::ops {

/// Cosines and sines of every position and frequency, fp32 [positions, R / 2], where R
/// features of each head are rotated.
struct RopeTable {
  at::Tensor cos;
  at::Tensor sin;
};

/// Makes the table of a model (Su et al., "RoFormer"), with angles computed in fp64.
/// llama3 scaling follows the model code of Llama 3.1. Frequencies whose wavelengths are
/// beyond original / low_freq_factor are divided by `factor`; frequencies whose
/// wavelengths are below original / high_freq_factor are kept. Between the two limits is
/// a linear blend. YaRN follows transformers; its attention factor is part of the table.
RopeTable make_rope_table(const RopeConfig& rope, int64_t rotated, int64_t positions,
                          at::Device device);

/// Returns x with the first R features of every head rotated, in pairs (i, i + R/2), by
/// the angle of the token's position, computed in fp32. The other features stay as they
/// are. x is [T, heads, D] with R <= D, positions is int32 [T], and the result has the
/// dtype of x.
at::Tensor rope(const at::Tensor& x, const RopeTable& table, const at::Tensor& positions,
                bool fused);

/// Rotates q and k in place, on any device; v stays as it is. Nothing else may need the
/// old values of q and k. The gradients are laid out like q, k and v (ColumnLayout), so
/// that joint_linear gets its gradients as one matrix.
Heads rope_in_place(const Heads& heads, const RopeTable& table,
                    const at::Tensor& positions);

}  // namespace longhaul::ops
