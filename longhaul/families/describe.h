#pragma once

#include <string>

#include "longhaul/families/network.h"

namespace longhaul::families {

/// Returns the description of the network: its units, their parameters and what they
/// cost.
ModelDescription describe(const Network& network);
/// Returns which layers see all positions and which a window, and how each kind is
/// rotated, for a person. The text is empty if all layers are alike.
std::string layer_kinds(const Network& network);

}  // namespace longhaul::families
