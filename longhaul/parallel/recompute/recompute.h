#pragma once

#include "longhaul/nn/forward_context.h"

namespace longhaul::parallel {

/// Runs a block without a graph and keeps what it is given only; the backward runs it
/// again with a graph (Chen et al., "Training Deep Nets with Sublinear Memory Cost").
/// Bitwise the same as running it plainly. `block` and what it refers to must live until
/// the backward. `offload`: the kept input waits in (pinned) host memory where the device
/// has memory of its own; copies are ordered on the current stream.
nn::Tensors recompute(const nn::BlockFunction& block, const nn::Tensors& x,
                      bool offload = false);

}  // namespace longhaul::parallel
