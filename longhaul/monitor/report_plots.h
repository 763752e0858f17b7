#pragma once

#include <string>

#include "longhaul/monitor/run_files.h"

namespace longhaul::monitor {

/// The plots over steps, each in a card: loss with validation, gradient norm, learning
/// rate, throughput, utilisation, memory. Restarts and bad steps are marked.
std::string plot_cards(const RunFiles& run);

}  // namespace longhaul::monitor
