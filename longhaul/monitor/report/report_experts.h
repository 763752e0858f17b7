#pragma once

#include <string>
#include <vector>

#include "longhaul/monitor/plot.h"
#include "longhaul/monitor/run_files.h"

namespace longhaul::monitor {

/// Returns the cards of a model with experts: the use of experts and the router's entropy
/// by step, and the load of each expert of some layers. Returns nothing for other models.
std::string expert_cards(const RunFiles& run, const std::vector<PlotMark>& marks);

}  // namespace longhaul::monitor
