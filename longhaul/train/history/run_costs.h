#pragma once

#include "longhaul/config/run_config.h"
#include "longhaul/monitor/run_files.h"

namespace longhaul::train {

/// Returns the seconds of nodes that a run has paid for so far. `run` is read already.
double spent_node_seconds(const monitor::RunFiles& run);

/// Returns the seconds of nodes that run.budget pays for. Budget and price must be set.
double budget_node_seconds(const RunSection& settings);

/// Throws ConfigError if run.until is past, or if earlier starts have spent run.budget.
/// Reads the run's directory.
void refuse_past_end(const RunConfig& config);

}  // namespace longhaul::train
