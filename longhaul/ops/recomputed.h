#pragma once

#include <functional>
#include <vector>

#include "longhaul/ops/linear/linear_input.h"

namespace longhaul::ops {

/// A tensor as a function of tensors; differentiable, and the same bits at every call.
using TensorFunction = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

/// f(inputs), of which neither the result nor anything inside is kept, only the inputs,
/// at most three: in the backward f runs once more, with a graph, for whoever takes the
/// result again and for its own gradient (Korthikanti et al., "Reducing Activation
/// Recomputation", section 5). Bitwise the same as calling f. f holds by value what it
/// needs until the backward; if it is a collective, so is the backward.
LinearInput recomputed(TensorFunction f, const std::vector<at::Tensor>& inputs);

}  // namespace longhaul::ops
