#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "longhaul/config/run_config.h"
#include "longhaul/families/description.h"

namespace longhaul::optim {

/// What the optimizer does with one parameter.
struct ParamSettings {
  double lr_scale = 1.0;
  double weight_decay = 0.0;
  bool frozen = false;
  bool operator==(const ParamSettings&) const = default;
};

struct ParamGroups {
  std::map<std::string, ParamSettings> settings;  ///< of every parameter of the model
  /// Groups that match no parameter of the whole model, in words. Their exceptions are
  /// not made, so that nothing should begin with them.
  std::vector<std::string> unmatched;
  std::vector<std::string> warnings;  ///< the same of no_decay, but for its default

  std::set<std::string> frozen() const;
};

/// The first group of [optimizer] groups that matches a parameter decides; where it names
/// no weight_decay, and for parameters without a group, the optimizer's holds, 0 for
/// those of no_decay. A group's weight_decay holds for parameters of no_decay too. While
/// no_decay is its default, the model's norms and biases by whatever names are left alone
/// as well. A pattern matches a parameter by any of its names
/// (families/parameter_names.h): one that matches a tensor of the files which holds
/// several parameters matches all of them. ConfigError when every parameter is frozen.
ParamGroups assign_param_groups(const ModelDescription& model,
                                const OptimizerSection& optimizer);

/// ConfigError, at their place in the file, that says what `groups`, those of `config`,
/// leaves unmatched, if anything.
void refuse_unmatched(const RunConfig& config, const ParamGroups& groups);

/// Parameters that are treated otherwise than by older versions of this program, which
/// knew a parameter by its own name only: a run of theirs that goes on changes there.
std::set<std::string> newly_meant(const ModelDescription& model,
                                  const OptimizerSection& optimizer);

/// What those older versions froze.
std::set<std::string> frozen_by_own_names(const ModelDescription& model,
                                          const OptimizerSection& optimizer);

}  // namespace longhaul::optim
