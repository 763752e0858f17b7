#pragma once

#include <c10/core/ScalarType.h>

#include "longhaul/format/dtype.h"

namespace longhaul::tensor {

at::ScalarType to_scalar_type(format::DType dtype);
format::DType from_scalar_type(at::ScalarType type);

/// The dtype of each class of tensors. No other place decides a dtype: there is no
/// autocast, and layers work in the dtype of their input.
struct DTypePolicy {
  format::DType compute = format::DType::BF16;   ///< weights and activations
  format::DType master = format::DType::F32;     ///< the optimizer's weights
  format::DType moments = format::DType::F32;    ///< both moments
  format::DType gradients = format::DType::F32;  ///< accumulators
  format::DType reduce = format::DType::F32;     ///< gradients on the wire
};

}  // namespace longhaul::tensor
