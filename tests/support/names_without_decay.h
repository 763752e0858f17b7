#pragma once

#include <set>
#include <string>

#include "longhaul/families/description/description.h"

namespace longhaul {

/// Returns the names of norms and biases.
inline std::set<std::string> names_without_decay(const ModelDescription& model) {
  std::set<std::string> found;
  for (const ParameterDescription& p : model.parameters()) {
    if (!p.decays) found.insert(p.name);
  }
  return found;
}

}  // namespace longhaul
