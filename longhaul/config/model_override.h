#pragma once

#include <string>

namespace longhaul {

/// One field of config.json to replace: `json` is the new value as JSON text.
struct ModelOverride {
  std::string field;
  std::string json;
  bool operator==(const ModelOverride&) const = default;
};

}  // namespace longhaul
