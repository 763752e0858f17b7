#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "longhaul/families/layers/unit_maker.h"

namespace longhaul::families {

/// The low-rank part of a linear layer (Hu et al., "LoRA"), whose own weight W is frozen:
/// y = x W^T + scale * drop(x) A^T B^T + bias. The part has the parameters A,
/// NAME.lora_A.weight [rank, width of x], and B, NAME.lora_B.weight [out, rank].
struct LowRank {
  int64_t rank = 0;
  double scale = 1.0;
  double dropout = 0.0;
  /// Whether row i of W + scale * B A is scaled to the length
  /// NAME.lora_magnitude_vector[i] (Liu et al., "DoRA"). The gradient takes the length
  /// that the row has without this scale as a constant.
  bool magnitude = false;
  /// The layer whose A this layer has too; empty: A is its own.
  std::string a_of = {};
  bool operator==(const LowRank&) const = default;
};

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
  std::optional<LowRank> adapter =
      {};  ///< absent: the layer is its weight and bias alone
  bool operator==(const Linear&) const = default;
};

/// Returns the name of A of the layer's low-rank part, which is there.
std::string lora_a(const Linear& layer);
/// Returns the name of B of the layer's low-rank part.
std::string lora_b(const Linear& layer);

/// Says that files hold the projections one behind the other, as the rows of one tensor.
void store_together(const std::string& name, std::initializer_list<Linear*> parts);

/// Adds the layer's result for x to the unit's description. `split` is that of the
/// weight: by rows (dim 0), or by columns at the end of a region with split features.
Feature add_linear(UnitMaker& unit, const Linear& layer, const Feature& x,
                   format::ShardSplit split);

}  // namespace longhaul::families
