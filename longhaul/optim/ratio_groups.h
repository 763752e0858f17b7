#pragma once

#include <map>
#include <string>

#include "longhaul/families/description.h"
#include "longhaul/optim/param_groups.h"

namespace longhaul::optim {

/// Every parameter of the whole model, and the tensor of the Hugging Face model that it
/// is or lies in.
using TensorOfParameter = std::map<std::string, std::string>;
TensorOfParameter stored_tensor_names(const ModelDescription& model);

/// ConfigError where parameters that one tensor of the Hugging Face model holds are told
/// different weight decays, or to be frozen in part: LAMB has one ratio for them.
void check_ratio_groups(const ModelDescription& model, const ParamGroups& groups);

}  // namespace longhaul::optim
