#pragma once

#include "longhaul/families/description/description.h"
#include "longhaul/layout/pipeline/partition.h"

namespace longhaul::layout {

/// Returns the operations of a forward pass over `seq_len` tokens in the parts of a
/// model. Every layer has the average of all layers.
LayerCosts layer_costs(const ModelDescription& model, int64_t seq_len);

}  // namespace longhaul::layout
