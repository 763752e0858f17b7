#pragma once

#include "longhaul/families/network.h"

namespace longhaul::families {

/// Returns what the network consists of and what it costs.
ModelDescription describe(const Network& network);

}  // namespace longhaul::families
