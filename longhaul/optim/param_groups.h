#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "longhaul/config/run_config.h"
#include "longhaul/families/description/description.h"
#include "longhaul/tensor/parameter_class.h"

namespace longhaul::optim {

struct ParamGroups {
  std::map<std::string, tensor::ParameterClass>
      settings;  ///< by parameter, for the whole model
  /// Messages about groups that match no parameter of the whole model. Such a group has
  /// no effect, so that no run should begin with one.
  std::vector<std::string> unmatched;
  /// Messages about patterns of no_decay that match no parameter; none for the default.
  std::vector<std::string> warnings;

  std::set<std::string> frozen() const;
};

/// Returns the class of every parameter. The first group of [optimizer] groups that
/// matches a parameter decides. If the group names no weight_decay, and for parameters
/// without a group, the weight_decay of the optimizer holds, or 0 for parameters of
/// no_decay. The weight_decay of a group holds for parameters of no_decay too. If
/// no_decay is the default, norms and biases do not decay either, whatever their names
/// are. A pattern matches a parameter by any of its names (families/parameter_names.h); a
/// pattern that matches a tensor of the files that holds several parameters matches all
/// of these parameters. Throws ConfigError if every parameter is frozen.
ParamGroups assign_param_groups(const ModelDescription& model,
                                const OptimizerSection& optimizer);

/// Throws ConfigError, with the place in the file, if groups of `config` match no
/// parameter. `groups` are those of `config`.
void refuse_unmatched(const RunConfig& config, const ParamGroups& groups);

/// Returns the parameters whose class differs from the class that older versions of this
/// program gave them. Those versions matched patterns with a parameter's own name only.
/// So a run that an older version began has another class for these parameters from now
/// on.
std::set<std::string> newly_meant(const ModelDescription& model,
                                  const OptimizerSection& optimizer);

/// Returns the parameters that older versions of this program froze, which matched
/// patterns with a parameter's own name only.
std::set<std::string> frozen_by_own_names(const ModelDescription& model,
                                          const OptimizerSection& optimizer);

/// The tensor of the Hugging Face model that holds each parameter of the whole model, by
/// parameter.
using TensorOfParameter = std::map<std::string, std::string>;
TensorOfParameter stored_tensor_names(const ModelDescription& model);

/// Throws ConfigError if parameters that one tensor of the Hugging Face model holds have
/// different weight decays, or if only some of them are frozen: LAMB has one ratio for
/// the tensor.
void check_ratio_groups(const ModelDescription& model, const ParamGroups& groups);

}  // namespace longhaul::optim
