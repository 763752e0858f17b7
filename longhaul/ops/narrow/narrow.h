#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/tensor/device_limits.h"

// Forms of operations for devices without 64-bit numbers and without writes into parts of
// tensors (tensor::DeviceLimits). The forms use few operators of LibTorch, have the same
// shapes and static arguments in every step, and write into no view. They run on any
// device, so that tests compare them with the other forms on a CPU.

namespace longhaul::ops::narrow {

/// Returns whether the device of x computes with at most 32 bits. Its index tensors are
/// int32 then.
inline bool is_on_narrow_device(const at::Tensor& x) {
  return !tensor::limits_of(x.device()).wide_types;
}

/// The elements whose sum is one fp32 number of block_sums().
inline constexpr int64_t kSumBlock = 256;

/// Returns the fp32 sums of consecutive elements of `values`, fp32 [ceil(n / kSumBlock)].
/// The host adds up the sums in fp64. An empty tensor has one sum, 0.
at::Tensor block_sums(const at::Tensor& values);

/// Returns the log of the sum of e^x over the last dim of x, fp32 [..]. A row of minus
/// infinity has minus infinity.
at::Tensor log_sum_exp(const at::Tensor& x);

}  // namespace longhaul::ops::narrow
