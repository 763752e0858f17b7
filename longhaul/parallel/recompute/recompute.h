#pragma once

#include <functional>
#include <memory>

#include "longhaul/nn/forward_context.h"
#include "longhaul/parallel/recompute/offload.h"

namespace longhaul::parallel {

/// A block of a model, which computes its result from its input.
using BlockFunction = std::function<nn::Tensors(const nn::Tensors&)>;

/// Runs a block without a graph and keeps only its input; the backward runs the block
/// again with a graph (Chen et al., "Training Deep Nets with Sublinear Memory Cost").
/// Results are the same bits as without recomputation. `block` and everything that it
/// refers to must live until the backward. `offload` keeps the input in the host's
/// memory, if the device has memory of its own. All blocks of a stage share one
/// Offload, so that an input is fetched while another block runs. With null, inputs stay
/// on the device.
nn::Tensors recompute(const BlockFunction& block, const nn::Tensors& x,
                      const std::shared_ptr<Offload>& offload = nullptr);

}  // namespace longhaul::parallel
