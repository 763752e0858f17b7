#pragma once

#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/families/model_config.h"

namespace longhaul::families {

/// The settings of a model of a family; internal error for a model of another, `family`
/// being what people call it.
template <typename Settings>
const Settings& settings_of(const ModelConfig& config, std::string_view family) {
  const auto* settings = dynamic_cast<const Settings*>(config.settings.get());
  LH_ASSERT(settings != nullptr, "a model of type '{}' is no {}", config.model_type,
            family);
  return *settings;
}

}  // namespace longhaul::families
