#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longhaul::layout {

/// The layers [first_layer, end_layer) of one global stage. The first stage also has the
/// embedding, the last stage the final norm and the head.
struct StageLayers {
  int64_t first_layer = 0;
  int64_t end_layer = 0;
  int64_t size() const { return end_layer - first_layer; }
  bool operator==(const StageLayers&) const = default;
};

/// The costs of a model's parts, all in one unit (time or operations).
struct LayerCosts {
  std::vector<double> layers;  ///< cost of each layer, above 0
  double embedding = 0.0;
  double head = 0.0;
};

/// Cuts the layers into `stages` ranges of at least one layer, so that the most expensive
/// stage costs as little as possible. Among such cuts, returns the cut with the most even
/// costs. Among equally even cuts the first stage, then the last stage has the fewest
/// layers, and of the others the later ones have more. There are at least as many layers
/// as stages.
std::vector<StageLayers> partition_layers(const LayerCosts& costs, int64_t stages);

/// Returns the partition that a person has chosen: `counts` layers for each global stage.
std::vector<StageLayers> partition_layers(std::span<const int64_t> counts);

}  // namespace longhaul::layout
