#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "longhaul/families/description/description.h"
#include "longhaul/run/events.h"

namespace longhaul::train {

/// Returns the gradient norms of a step by part of the model: each is the root of the sum
/// of `squares` over the part's parameters. `names` are the names of the model's
/// parameters, sorted, and `squares` has one value for each. A tied head belongs to the
/// embedding.
run::LayerNormsEvent layer_norms(const ModelDescription& model,
                                 const std::vector<std::string>& names,
                                 std::span<const double> squares, int64_t step);

}  // namespace longhaul::train
