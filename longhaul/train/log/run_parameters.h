#pragma once

#include <cstdint>

#include "longhaul/base/json.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// Returns the parameters of results.json, under the names that the systems use which the
/// run is compared with. As there, "Batch size" is the number of sequences of one forward
/// pass of a replica; "Global batch size" is that of a step.
Json run_parameters(const Session& session, int64_t total_steps);

}  // namespace longhaul::train
