#pragma once

#include <string>

#include "longhaul/monitor/run_files.h"

namespace longhaul::monitor {

/// Returns the plots over steps, each in a card: loss with validation, the change of each
/// validation set, gradient norm, learning rate, throughput, utilisation, memory.
/// Restarts and bad steps are marked in all but the change of validation sets.
std::string plot_cards(const RunFiles& run);

}  // namespace longhaul::monitor
