#include "longhaul/optim/param_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::optim {
namespace {

bool any_matches(std::string_view pattern, std::span<const std::string> names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return matches_parameter(pattern, name);
  });
}

ParamSettings settings_of(const std::string& name, const OptimizerSection& optimizer,
                          const std::set<std::string>& without_decay) {
  ParamSettings settings;
  const bool usual = optimizer.no_decay == OptimizerSection{}.no_decay;
  const bool decays = !(usual && without_decay.contains(name)) &&
                      std::none_of(optimizer.no_decay.begin(), optimizer.no_decay.end(),
                                   [&](const std::string& pattern) {
                                     return matches_parameter(pattern, name);
                                   });
  settings.weight_decay = decays ? optimizer.weight_decay : 0.0;
  for (const ParameterGroup& group : optimizer.groups) {
    if (!matches_parameter(group.match, name)) continue;
    settings.lr_scale = group.lr_scale;
    settings.frozen = group.frozen;
    if (group.weight_decay) settings.weight_decay = *group.weight_decay;
    break;
  }
  return settings;
}

}  // namespace

ParamGroups assign_param_groups(std::span<const std::string> names,
                                const OptimizerSection& optimizer,
                                const std::set<std::string>& without_decay) {
  ParamGroups groups;
  for (const std::string& name : names) {
    groups.settings.push_back(settings_of(name, optimizer, without_decay));
  }
  for (const ParameterGroup& group : optimizer.groups) {
    if (any_matches(group.match, names)) continue;
    groups.warnings.push_back(
        fmt::format("optimizer.groups: match = \"{}\" matches none of the {} parameters "
                    "(the first is "
                    "{}); the group has no effect",
                    group.match, names.size(), names.empty() ? "absent" : names.front()));
  }
  const bool all_frozen =
      !names.empty() && std::all_of(groups.settings.begin(), groups.settings.end(),
                                    [](const ParamSettings& s) { return s.frozen; });
  if (all_frozen) {
    throw ConfigError("optimizer",
                      fmt::format("optimizer.groups freezes all {} parameters; "
                                  "nothing is left to train",
                                  names.size()));
  }
  return groups;
}

}  // namespace longhaul::optim
