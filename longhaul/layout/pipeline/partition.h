#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longhaul {

/// The layers [first_layer, end_layer) of one global stage. The embedding belongs to the
/// first stage, final norm and head to the last.
struct StageLayers {
  int64_t first_layer = 0;
  int64_t end_layer = 0;
  int64_t size() const { return end_layer - first_layer; }
  bool operator==(const StageLayers&) const = default;
};

/// What the parts of a model cost, in any one unit (time or operations).
struct LayerCosts {
  double layer = 1.0;
  double embedding = 0.0;
  double head = 0.0;
};

/// Cuts `layers` equal layers into `stages` runs of at least one layer, so that the most
/// expensive stage costs as little as possible; among such cuts, the one whose costs are
/// most even. What is still open goes to later stages, which hold fewer micro batches.
/// ConfigError where there are fewer layers than stages.
std::vector<StageLayers> partition_layers(int64_t layers, int64_t stages,
                                          const LayerCosts& costs);

/// The partition that a person has chosen: layers per global stage.
/// ConfigError unless there is one count of at least 1 per stage and they add up.
std::vector<StageLayers> partition_layers(int64_t layers, int64_t stages,
                                          std::span<const int64_t> counts);

}  // namespace longhaul
