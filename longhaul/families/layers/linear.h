#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "longhaul/families/layers/unit_maker.h"

namespace longhaul::families {

/// A linear layer y = x W^T + bias, with W [out, width of x]; the bias is optional.
struct Linear {
  std::string name;
  int64_t out = 0;
  bool bias = false;
  /// How files hold the weight and the bias, if not as NAME.weight and NAME.bias in this
  /// form. StoredForm::name then lacks the end .weight or .bias. A bias is never
  /// transposed.
  std::optional<StoredForm> stored = {};
  /// Standard deviation of the initial values, if it differs from Network::stddev.
  std::optional<double> stddev = {};
  bool operator==(const Linear&) const = default;
};

/// Says that files hold the projections one behind the other, as the rows of one tensor.
void store_together(const std::string& name, std::initializer_list<Linear*> parts);

/// Adds the layer's result for x to the unit's description. `split` is that of the
/// weight: by rows (dim 0), or by columns at the end of a region with split features.
Feature add_linear(UnitMaker& unit, const Linear& layer, const Feature& x,
                   format::ShardSplit split);

}  // namespace longhaul::families
