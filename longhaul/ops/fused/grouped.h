#pragma once

#include <ATen/core/Tensor.h>

// The CPU's kernels of grouped_product and grouped_gradient (fused.h).

namespace longhaul::ops::fused {

void grouped_product_on_cpu(const at::Tensor& x, const at::Tensor& offsets,
                            const at::Tensor& weights, const at::Tensor& y);
void grouped_gradient_on_cpu(const at::Tensor& dy, const at::Tensor& x,
                             const at::Tensor& offsets, bool add, const at::Tensor& grad);

}  // namespace longhaul::ops::fused
