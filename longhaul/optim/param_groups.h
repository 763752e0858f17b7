#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "longhaul/config/run_config.h"

namespace longhaul::optim {

/// What the optimizer does with one parameter.
struct ParamSettings {
  double lr_scale = 1.0;
  double weight_decay = 0.0;
  bool frozen = false;
  bool operator==(const ParamSettings&) const = default;
};

struct ParamGroups {
  std::vector<ParamSettings> settings;  ///< one per name, in their order
  std::vector<std::string> warnings;    ///< patterns that match no parameter
};

/// The first group of [optimizer] groups that matches a name decides; where it names no
/// weight_decay, and for names without a group, the optimizer's holds, 0 for names of
/// no_decay. A group's weight_decay holds for names of no_decay too. While no_decay is
/// its default, `without_decay`, the model's norms and biases by whatever names, are left
/// alone as well. ConfigError when every parameter is frozen.
ParamGroups assign_param_groups(std::span<const std::string> names,
                                const OptimizerSection& optimizer,
                                const std::set<std::string>& without_decay = {});

}  // namespace longhaul::optim
