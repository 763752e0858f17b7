#pragma once

#include <ATen/core/Tensor.h>

#include <string>

// Products of activations and weights, each rounded once from an fp32 sum: LibTorch's, or
// our own where those are faster.
// Shapes: T rows, K features, N outputs. Weights are contiguous, rows of the others are.

namespace longhaul::ops {

/// x [T, K] w [N, K]^T + bias [N], which may be undefined.
at::Tensor linear_product(const at::Tensor& x, const at::Tensor& w,
                          const at::Tensor& bias = {});

/// dy [T, N] w [N, K], where the second form writes it to y [T, K].
at::Tensor product(const at::Tensor& dy, const at::Tensor& w);
void product_out(at::Tensor& y, const at::Tensor& dy, const at::Tensor& w);

/// Whose products of this element type these and the weights' gradients are: for the log,
/// and for what decides the last bits of a result.
std::string describe_products(at::ScalarType type, at::Device device);

}  // namespace longhaul::ops
