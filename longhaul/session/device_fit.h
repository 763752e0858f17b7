#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "longhaul/layout/rank_costs.h"

namespace longhaul::session {

/// Checks, before anything large is made, whether a rank's tensors fit its device's
/// memory beside `nccl_bytes`, which NCCL is still to take. Throws ConfigError with the
/// bytes by kind where the model's state and NCCL's buffers alone do not fit. Returns the
/// text of a warning where the tensors of the passes, whose sizes are estimates, do not
/// fit beside the state; else an empty text.
std::string check_fit(const layout::RankCosts& costs, int64_t nccl_bytes,
                      size_t free_bytes, size_t total_bytes);

}  // namespace longhaul::session
