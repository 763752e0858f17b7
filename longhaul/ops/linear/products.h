#pragma once

#include <ATen/core/Tensor.h>

#include <string>

// Products of activations and weights, each rounded once from an fp32 sum. LibTorch makes
// the products, or Longhaul itself if it is faster. Shapes: T rows, K features, N
// outputs. Weights are contiguous; of the other tensors each row is contiguous.

namespace longhaul::ops {

/// Returns x [T, K] w [N, K]^T + bias [N]; the bias may be undefined.
at::Tensor linear_product(const at::Tensor& x, const at::Tensor& w,
                          const at::Tensor& bias = {});

/// Returns dy [T, N] w [N, K]; product_out() writes it to y [T, K].
at::Tensor product(const at::Tensor& dy, const at::Tensor& w);
void product_out(at::Tensor& y, const at::Tensor& dy, const at::Tensor& w);

/// Says which library computes these products and the weight gradients for this element
/// type, for the log and for the record of what decides the last bits of a result.
std::string describe_products(at::ScalarType type, at::Device device);

}  // namespace longhaul::ops
