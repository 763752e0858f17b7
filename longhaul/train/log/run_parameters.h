#pragma once

#include <cstdint>

#include "longhaul/base/json.h"
#include "longhaul/train/log/other_results.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Returns the parameters of results.json in our form. "Batch size" is the number of
/// sequences of one forward pass of a replica; "Global batch size" is that of a step.
Json run_parameters(const TrainingSession& session, int64_t total_steps);

/// Returns what the other forms of results.json need besides run_parameters(). Looks at
/// the files of data.train where log.results is "bert".
ResultsFacts results_facts(const TrainingSession& session);

}  // namespace longhaul::train
