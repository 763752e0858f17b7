#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/parallel/data/data_parallel.h"

namespace longhaul::parallel {

/// One use of a unit.
struct UnitUse {
  int unit = 0;
  int previous = -1;  ///< units to fetch ahead, in the backward and in the forward pass;
  int next = -1;      ///< -1: none
  bool last_micro_batch = false;
  bool weights_in_backward = true;  ///< an embedding's backward needs its gradient only
};

/// Runs a block that is a unit of its own: its weights are here while its forward, its
/// backward and its recomputation run, and its gradients are closed when its backward
/// ends, so that reductions overlap with the units before it. The neighbours' weights are
/// fetched ahead. `data` must live until the backward. Collective.
at::Tensor run_unit(DataParallel& data, const UnitUse& use,
                    const nn::BlockFunction& block, const at::Tensor& x);

}  // namespace longhaul::parallel
