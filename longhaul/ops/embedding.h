#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/ops/linear/weight_gradients.h"

namespace longhaul::ops {

/// Returns the rows of the table that `ids` name: ids is int32 or int64 [T], the table is
/// [V, H], the result [T, H]. If the table is a part of the vocabulary, ids of other
/// parts give zeros and no gradient. The result is part of a graph although no input
/// requires a gradient, because the graph of the first stage begins with it. The backward
/// adds rows in ascending order of tokens, so that its bits repeat, and adds nothing to
/// the padding row of the table.
at::Tensor embedding(const at::Tensor& ids, const tensor::ParameterPtr& table);

}  // namespace longhaul::ops
