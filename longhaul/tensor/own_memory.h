#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/tensor/device_limits.h"

namespace longhaul::tensor {

/// Returns x, or a copy of it, in a form that its device can send and write. The result
/// is contiguous. On a device that cannot write into a part of a tensor it begins its
/// memory.
inline at::Tensor in_own_memory(const at::Tensor& x) {
  const at::Tensor y = x.contiguous();
  const bool begins = y.storage_offset() == 0 || limits_of(y.device()).writes_views;
  return begins ? y : y.clone();
}

}  // namespace longhaul::tensor
