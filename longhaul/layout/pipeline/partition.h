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
  double layer = 1.0;
  double embedding = 0.0;
  double head = 0.0;
};

/// Cuts `layers` equal layers into `stages` runs of at least one layer, so that the most
/// expensive stage costs as little as possible. Among such cuts, returns the cut with the
/// most even costs. Among equally even cuts, more layers lie on later stages, which hold
/// fewer micro batches. Throws ConfigError where there are fewer layers than stages.
std::vector<StageLayers> partition_layers(int64_t layers, int64_t stages,
                                          const LayerCosts& costs);

/// Returns the partition that a person has chosen: `counts` layers for each global stage.
/// Throws ConfigError unless there is one count of at least 1 for each stage and the
/// counts add up to `layers`.
std::vector<StageLayers> partition_layers(int64_t layers, int64_t stages,
                                          std::span<const int64_t> counts);

}  // namespace longhaul::layout
