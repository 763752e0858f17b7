#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "longhaul/nn/forward_context.h"

namespace longhaul::models {

/// Stage input -> what follows the last of its `blocks` blocks, of which the first is
/// `first_layer` of the model: `embed` where nothing was handed on, then every block,
/// each as context.run_block has it.
nn::Tensors run_stage(
    const nn::Tensors& input, const nn::ForwardContext& context,
    const std::function<nn::Tensors()>& embed, int64_t first_layer, size_t blocks,
    const std::function<nn::Tensors(size_t, const nn::Tensors&)>& block);

/// A head's own layers, as context.run_block has them.
nn::Tensors run_head(const nn::Tensors& x, const nn::ForwardContext& context,
                     const nn::BlockFunction& head);

}  // namespace longhaul::models
