#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/tensor/parameter.h"

namespace longhaul::ops {

/// Returns the squared lengths of the rows of W + scale * B A, in fp32 [N]: W is [N, K],
/// A [R, K] and B [N, R]. No graph is made. W is read in blocks of rows.
at::Tensor row_squares(const at::Tensor& w, const at::Tensor& a, const at::Tensor& b,
                       double scale);

/// Returns y [T, N] with column i times magnitude[i] / lengths[i], computed in fp32 and
/// rounded to the dtype of y. `lengths` [N] in fp32 are constants for the backward, which
/// keeps y and adds the gradient of the magnitude to its accumulator.
at::Tensor with_row_lengths(const at::Tensor& y, const tensor::ParameterPtr& magnitude,
                            const at::Tensor& lengths);

}  // namespace longhaul::ops
