#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "longhaul/ops/common/dropout_draws.h"

namespace longhaul::ops {

/// Returns x [T, H] with some elements dropped; `draws` has sequences and index [T]. No
/// tensor is kept for the backward, which draws again.
at::Tensor dropout(const at::Tensor& x, const Dropout& draws, bool fused);

}  // namespace longhaul::ops
