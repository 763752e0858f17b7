#pragma once

#include <cstddef>
#include <string>

#include "longhaul/layout/rank_costs.h"

namespace longhaul::train {

/// Whether what a rank holds goes into its device's memory, before anything large is
/// made. ConfigError with the bytes by kind where the states alone do not; the text of a
/// warning where the passes' tensors, which are known about, would not; else empty.
std::string check_fit(const RankCosts& costs, size_t free_bytes, size_t total_bytes);

}  // namespace longhaul::train
