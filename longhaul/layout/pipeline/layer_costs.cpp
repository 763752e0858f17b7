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
  // Every layer gets the average cost of the layers. Earlier versions of the program cut
  // by this average, and a run that one of them began has to keep its cut.
  const double all = std::accumulate(costs.layers.begin(), costs.layers.end(), 0.0);
  std::ranges::fill(costs.layers, all / static_cast<double>(costs.layers.size()));
  return costs;
}

}  // namespace longhaul::layout
