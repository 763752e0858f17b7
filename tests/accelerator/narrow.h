#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace longhaul::softdev {

/// Returns whether the device is to have the limits of SOFTDEV_NARROW.
bool is_narrow();

// On a narrow device each of the following functions throws where the device cannot do
// something. The error names operation, dtype, shape and strides. On another device the
// functions do nothing.

/// Throws if the device cannot hold numbers of the dtype.
void check_width(c10::ScalarType dtype, const std::string& where);
/// Throws if the device cannot write to the tensor. The tensor must begin its memory, and
/// be contiguous or have all of the memory.
void check_written(const at::Tensor& t, const std::string& operation);
/// Throws if the device does not have the operation.
void check_known(const std::string& operation);

}  // namespace longhaul::softdev
