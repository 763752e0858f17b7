#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "longhaul/ops/common/dropout_draws.h"

namespace longhaul::ops {

/// Returns the factors of elements, scale() or 0 in fp32, for columns [first, first +
/// columns). `sequences`, `rows` (the index in the sequence) and `heads` are integers
/// [..., 1] that broadcast; the result is [..., columns]. Plain ATen operations on any
/// device.
at::Tensor dropout_factors(const Dropout& draws, const at::Tensor& sequences,
                           const at::Tensor& rows, const at::Tensor& heads, int64_t first,
                           int64_t columns);

}  // namespace longhaul::ops
