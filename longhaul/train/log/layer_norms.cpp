#include "longhaul/train/log/layer_norms.h"

#include <algorithm>
#include <cmath>

#include "longhaul/base/error.h"

namespace longhaul::train {

run::LayerNormsEvent layer_norms(const ModelDescription& model,
                                 const std::vector<std::string>& names,
                                 std::span<const double> squares, int64_t step) {
  run::LayerNormsEvent event;
  event.step = step;
  for (const UnitDescription& unit : model.units) {
    double sum = 0.0;
    for (const ParameterDescription& parameter : unit.parameters) {
      const auto at = std::ranges::lower_bound(names, parameter.name);
      LH_ASSERT(at != names.end() && *at == parameter.name, "{} has no square",
                parameter.name);
      sum += squares[static_cast<size_t>(at - names.begin())];
    }
    const double norm = std::sqrt(sum);
    switch (unit.kind) {
      case UnitKind::Embedding:
        event.embedding = norm;
        break;
      case UnitKind::Block:
        event.layers.push_back(norm);
        break;
      case UnitKind::Head:
        event.head = norm;
        break;
    }
  }
  return event;
}

}  // namespace longhaul::train
