#include "longhaul/layout/pipeline/layer_costs.h"

#include <algorithm>
#include <numeric>

namespace longhaul::layout {

LayerCosts layer_costs(const ModelDescription& model, int64_t seq_len) {
  LayerCosts costs;
  for (const UnitDescription& unit : model.units) {
    const double cost = forward_cost(unit, seq_len);
    if (unit.kind == UnitKind::Embedding) costs.embedding = cost;
    if (unit.kind == UnitKind::Block) costs.layers.push_back(cost);
    if (unit.kind == UnitKind::Head) costs.head = cost;
  }
  // Every layer gets the average cost of the layers, as in earlier versions. With its own
  // cost for each layer, a run that goes on could get another cut than it began with.
  const double all = std::accumulate(costs.layers.begin(), costs.layers.end(), 0.0);
  std::ranges::fill(costs.layers, all / static_cast<double>(costs.layers.size()));
  return costs;
}

}  // namespace longhaul::layout
