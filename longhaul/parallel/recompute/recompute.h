#pragma once

#include <functional>
#include <memory>

#include "longhaul/nn/forward_context.h"
#include "longhaul/parallel/recompute/offload.h"

namespace longhaul::parallel {

/// A block of a model: what is handed on to it -> what it hands on.
using BlockFunction = std::function<nn::Tensors(const nn::Tensors&)>;

/// Runs a block without a graph and keeps what it is given only; the backward runs it
/// again with a graph (Chen et al., "Training Deep Nets with Sublinear Memory Cost").
/// Bitwise the same as running it plainly. `block` and what it refers to must live until
/// the backward. `offload`: where the device has memory of its own the kept input waits
/// in the host's; one for all blocks of a stage, so that one is fetched while another
/// runs. Null: it stays.
nn::Tensors recompute(const BlockFunction& block, const nn::Tensors& x,
                      const std::shared_ptr<Offload>& offload);

/// The same; each block that is offloaded by itself.
nn::Tensors recompute(const BlockFunction& block, const nn::Tensors& x,
                      bool offload = false);

}  // namespace longhaul::parallel
