#pragma once

#include <algorithm>
#include <vector>

#include "longhaul/families/description/description.h"
#include "longhaul/nn/forward_context.h"

namespace longhaul::testing {

/// Returns what the routers of a whole model need on one rank.
inline nn::RouterContext router_of(const ModelDescription& model) {
  const auto number = [&](const char* name) {
    return static_cast<size_t>(std::ranges::find(model.losses, name, &LossTerm::name) -
                               model.losses.begin());
  };
  nn::RouterContext router;
  router.balance_term = number(kRouterBalance);
  router.z_term = number(kRouterZ);
  return router;
}

/// Returns a scale for each term of the loss: `scale` for terms with targets, and 0 for
/// those of routers, which then have no gradient.
inline std::vector<double> scales_of_targets(const ModelDescription& model,
                                             double scale) {
  std::vector<double> scales;
  for (const LossTerm& term : model.losses) {
    scales.push_back(term.over == LossTerm::Over::Targets ? scale : 0.0);
  }
  return scales;
}

}  // namespace longhaul::testing
