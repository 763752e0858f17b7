#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/comm/communicator.h"

namespace longhaul::tensor {

/// Returns the memory of a contiguous tensor as an argument of the communicator.
comm::Buffer buffer_of(const at::Tensor& x);

}  // namespace longhaul::tensor
