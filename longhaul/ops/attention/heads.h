#pragma once

#include <ATen/core/Tensor.h>

namespace longhaul::ops {

/// The queries, keys and values that attention takes, by token.
struct Heads {
  at::Tensor q, k, v;  ///< [T, heads of each, D]
};

}  // namespace longhaul::ops
