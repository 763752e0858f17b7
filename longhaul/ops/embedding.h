#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/ops/linear/weight_gradients.h"

namespace longhaul::ops {

/// Rows of the table: ids [T] int32 or int64, table [V, H], result [T, H]. Of a table
/// that is a part of the vocabulary, ids of other parts give zeros and no gradient. The
/// result is part of a graph although no input requires grad: it anchors the first stage.
/// The backward adds rows in ascending token order, so it repeats bitwise. To the table's
/// padding row it adds nothing.
at::Tensor embedding(const at::Tensor& ids, const ParameterPtr& table);

}  // namespace longhaul::ops
