#pragma once

#include <optional>

#include "longhaul/families/layers/activation.h"
#include "longhaul/families/layers/linear.h"

namespace longhaul::families {

/// A feed-forward: down(act(gate x) * up x), or down(act(up x)) without a gate.
struct FeedForward {
  std::optional<Linear> gate = {};
  Linear up, down;
  Activation activation = Activation::Silu;
  bool operator==(const FeedForward&) const = default;
};

/// Adds the feed-forward of x to the unit's description.
Feature add_layer(UnitMaker& unit, const FeedForward& layer, const Feature& x);
/// Adds the feed-forward of x inside of a region with split features, where the result is
/// one rank's part of a sum.
Feature add_inside(UnitMaker& unit, const FeedForward& layer, const Feature& x);

}  // namespace longhaul::families
