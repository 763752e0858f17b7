#pragma once

#include <string>

#include "longhaul/monitor/run_files.h"

namespace longhaul::monitor {

/// The plots over steps, each in a card: loss with validation, the change of each
/// validation set, gradient norm, learning rate, throughput, utilisation, memory.
/// Restarts and bad steps are marked but for that change.
std::string plot_cards(const RunFiles& run);

}  // namespace longhaul::monitor
