#pragma once

#include "longhaul/families/network.h"

namespace longhaul::families {

/// What the network consists of and what it costs.
ModelDescription describe(const Network& network);

}  // namespace longhaul::families
