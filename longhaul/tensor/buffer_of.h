#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/comm/communicator.h"

namespace longhaul::tensor {

/// Returns the memory of a contiguous tensor as an argument of the communicator. The
/// tensor must live until the communicator's verb has returned.
comm::Buffer buffer_of(const at::Tensor& x);

/// Returns the tensor that a buffer was made of, and shares it; undefined if the buffer
/// was made of an address.
at::Tensor tensor_of(const comm::ConstBuffer& buffer);

}  // namespace longhaul::tensor
