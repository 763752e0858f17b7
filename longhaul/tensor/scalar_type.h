#pragma once

#include <c10/core/ScalarType.h>

#include "longhaul/format/dtype.h"

namespace longhaul {

at::ScalarType to_scalar_type(DType dtype);
DType from_scalar_type(at::ScalarType type);

/// The dtype of each class of tensors. No other place decides a dtype: there is no
/// autocast, and layers work in the dtype of their input.
struct DTypePolicy {
  DType compute = DType::BF16;   ///< weights and activations
  DType master = DType::F32;     ///< the optimizer's weights
  DType moments = DType::F32;    ///< both moments
  DType gradients = DType::F32;  ///< accumulators
  DType reduce = DType::F32;     ///< gradients on the wire
};

}  // namespace longhaul
