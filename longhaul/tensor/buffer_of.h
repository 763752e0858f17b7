#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/comm/communicator.h"

namespace longhaul {

/// A tensor's memory for a verb of the communicator. The tensor must be contiguous.
comm::Buffer buffer_of(const at::Tensor& x);

}  // namespace longhaul
