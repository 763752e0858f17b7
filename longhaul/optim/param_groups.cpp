#include "longhaul/optim/param_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/config/rules.h"
#include "longhaul/families/parameter_names.h"

namespace longhaul::optim {
namespace {

/// A parameter with all names by which a pattern may match it.
struct NamedParameter {
  std::vector<std::string> names;  ///< the name of the parameter itself comes first
  bool decays = true;
  std::string together = {};  ///< see together_name
  bool trained = true;        ///< see ParameterDescription::trained

  const std::string& name() const { return names.front(); }
  bool is_meant_by(const std::string& pattern) const {
    return std::ranges::any_of(
        names, [&](const std::string& name) { return matches_parameter(pattern, name); });
  }
};

/// The patterns that match none of NamedParameter::names of any parameter. Only these may
/// match together_name: the pattern "up_proj" must not match the gate, which files may
/// hold in "gate_up_proj".
using OtherPatterns = std::set<std::string>;

bool is_meant(const NamedParameter& p, const std::string& pattern,
              const OtherPatterns& others) {
  return p.is_meant_by(pattern) ||
         (others.contains(pattern) && matches_parameter(pattern, p.together));
}

std::vector<NamedParameter> parameters_of(const ModelDescription& model) {
  std::vector<NamedParameter> parameters;
  for (const ParameterDescription& p : model.parameters()) {
    parameters.push_back({names_of(model, p), p.decays, together_name(p), p.trained});
  }
  return parameters;
}

OtherPatterns other_patterns(const std::vector<NamedParameter>& parameters,
                             const OptimizerSection& optimizer) {
  std::vector<std::string> patterns = optimizer.no_decay;
  for (const ParameterGroup& group : optimizer.groups) patterns.push_back(group.match);
  OtherPatterns others;
  for (const std::string& pattern : patterns) {
    if (std::ranges::none_of(parameters, [&](const NamedParameter& p) {
          return p.is_meant_by(pattern);
        })) {
      others.insert(pattern);
    }
  }
  return others;
}

tensor::ParameterClass settings_of(const NamedParameter& parameter,
                                   const OptimizerSection& optimizer,
                                   const OtherPatterns& others) {
  tensor::ParameterClass settings;
  const bool usual = optimizer.no_decay == OptimizerSection{}.no_decay;
  const bool decays =
      !(usual && !parameter.decays) &&
      std::ranges::none_of(optimizer.no_decay, [&](const std::string& pattern) {
        return is_meant(parameter, pattern, others);
      });
  settings.weight_decay = decays ? optimizer.weight_decay : 0.0;
  for (const ParameterGroup& group : optimizer.groups) {
    if (!is_meant(parameter, group.match, others)) continue;
    settings.lr_scale = group.lr_scale;
    settings.frozen = group.frozen;
    if (group.weight_decay) settings.weight_decay = *group.weight_decay;
    break;
  }
  settings.frozen = settings.frozen || !parameter.trained;
  return settings;
}

bool any_is_meant(const std::vector<NamedParameter>& parameters,
                  const std::string& pattern, const OtherPatterns& others) {
  return std::ranges::any_of(parameters, [&](const NamedParameter& p) {
    return p.trained && is_meant(p, pattern, others);
  });
}

/// Returns what a pattern that matches nothing may have been meant for.
std::string advice(const ModelDescription& model,
                   const std::vector<NamedParameter>& parameters,
                   const std::string& pattern) {
  if (std::ranges::any_of(
          parameters, [&](const NamedParameter& p) { return p.is_meant_by(pattern); })) {
    return "what it matches is not trained beside an adapter";
  }
  if (model.tied && matches_parameter(pattern, model.tied->head)) {
    return fmt::format(
        "{} is no parameter of its own here: config.json ties it to {}; name that "
        "parameter instead",
        model.tied->head, model.tied->embedding);
  }
  return fmt::format(
      "the first parameter is {}; longhaul inspect --names lists all of "
      "them, with their names in Hugging Face's files",
      parameters.empty() ? "absent" : parameters.front().name());
}

}  // namespace

std::set<std::string> ParamGroups::frozen() const {
  std::set<std::string> names;
  for (const auto& [name, one] : settings) {
    if (one.frozen) names.insert(name);
  }
  return names;
}

ParamGroups assign_param_groups(const ModelDescription& model,
                                const OptimizerSection& optimizer) {
  const std::vector<NamedParameter> parameters = parameters_of(model);
  const OtherPatterns others = other_patterns(parameters, optimizer);
  ParamGroups groups;
  for (const NamedParameter& p : parameters) {
    groups.settings.emplace(p.name(), settings_of(p, optimizer, others));
  }
  for (const ParameterGroup& group : optimizer.groups) {
    if (any_is_meant(parameters, group.match, others)) continue;
    groups.unmatched.push_back(fmt::format(
        "optimizer.groups: match = \"{}\" matches none of the model's {} parameters; {}",
        group.match, parameters.size(), advice(model, parameters, group.match)));
  }
  const std::vector<std::string> usual = OptimizerSection{}.no_decay;
  for (const std::string& pattern : optimizer.no_decay) {
    if (std::ranges::count(usual, pattern) > 0) continue;
    if (any_is_meant(parameters, pattern, others)) continue;
    groups.warnings.push_back(fmt::format(
        "optimizer.no_decay: \"{}\" matches none of the model's {} parameters; {}",
        pattern, parameters.size(), advice(model, parameters, pattern)));
  }
  if (!parameters.empty() && groups.frozen().size() == parameters.size()) {
    fail_config("optimizer",
                "optimizer.groups freezes all {} parameters; nothing is left to train",
                parameters.size());
  }
  return groups;
}

void refuse_unmatched(const RunConfig& config, const ParamGroups& groups) {
  if (groups.unmatched.empty()) return;
  config::fail_key(config, "optimizer.groups",
                   "{}; correct the pattern, or remove it; otherwise the run would begin "
                   "without the settings that it should apply",
                   fmt::join(groups.unmatched, "; "));
}

std::set<std::string> newly_meant(const ModelDescription& model,
                                  const OptimizerSection& optimizer) {
  std::set<std::string> names;
  const std::vector<NamedParameter> parameters = parameters_of(model);
  const OtherPatterns others = other_patterns(parameters, optimizer);
  for (const NamedParameter& p : parameters) {
    if (settings_of(p, optimizer, others) !=
        settings_of({{p.name()}, p.decays, {}, p.trained}, optimizer, {})) {
      names.insert(p.name());
    }
  }
  return names;
}

std::set<std::string> frozen_by_own_names(const ModelDescription& model,
                                          const OptimizerSection& optimizer) {
  std::set<std::string> frozen;
  for (const std::string& name : model.names()) {
    if (settings_of({{name}, true}, optimizer, {}).frozen) frozen.insert(name);
  }
  return frozen;
}

TensorOfParameter stored_tensor_names(const ModelDescription& model) {
  TensorOfParameter tensors;
  for (const ParameterDescription& p : model.parameters()) tensors[p.name] = file_name(p);
  return tensors;
}

void check_ratio_groups(const ModelDescription& model, const ParamGroups& groups) {
  const TensorOfParameter tensors = stored_tensor_names(model);
  std::map<std::string, std::string> first;
  for (const std::string& name : model.names()) {
    const std::string& tensor = tensors.at(name);
    const std::string& before = first.emplace(tensor, name).first->second;
    const tensor::ParameterClass& one = groups.settings.at(before);
    const tensor::ParameterClass& other = groups.settings.at(name);
    if (one.weight_decay == other.weight_decay && one.frozen == other.frozen) continue;
    const auto text = [](const tensor::ParameterClass& s) {
      return s.frozen ? std::string("frozen")
                      : fmt::format("weight_decay {}", s.weight_decay);
    };
    fail_config("optimizer",
                "optimizer.groups gives {} {} and {} {}, but both are parts of {}, for "
                "which optimizer.kind = \"lamb\" has one trust ratio; give both the same",
                before, text(one), name, text(other), tensor);
  }
}

}  // namespace longhaul::optim
