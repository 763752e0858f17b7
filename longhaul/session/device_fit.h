#pragma once

#include <cstddef>
#include <string>

#include "longhaul/layout/rank_costs.h"

namespace longhaul::session {

/// Checks, before anything large is made, whether a rank's tensors fit its device's
/// memory. Throws ConfigError with the bytes by kind where the model's state alone does
/// not fit. Returns the text of a warning where the tensors of the passes, whose sizes
/// are estimates, do not fit beside the state; else an empty text.
std::string check_fit(const layout::RankCosts& costs, size_t free_bytes,
                      size_t total_bytes);

}  // namespace longhaul::session
