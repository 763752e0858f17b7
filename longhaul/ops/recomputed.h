#pragma once

#include <functional>
#include <vector>

#include "longhaul/ops/linear/linear_input.h"

namespace longhaul::ops {

/// A differentiable function of tensors that gives the same bits at every call.
using TensorFunction = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

/// Returns f(inputs), with at most three inputs. Only the inputs are kept for the
/// backward, neither the result nor what f computes on the way. The backward runs f once
/// more, with a graph, for the node that takes the result again and for the gradient of f
/// (Korthikanti et al., "Reducing Activation Recomputation", section 5). The results have
/// the same bits as a plain call of f. f must hold by value what it needs until the
/// backward. If f is collective, so is the backward.
LinearInput recomputed(TensorFunction f, const std::vector<at::Tensor>& inputs);

}  // namespace longhaul::ops
