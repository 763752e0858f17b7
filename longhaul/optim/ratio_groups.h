#pragma once

#include <map>
#include <string>

#include "longhaul/families/description/description.h"
#include "longhaul/optim/param_groups.h"

namespace longhaul::optim {

/// The tensor of the Hugging Face model that holds each parameter of the whole model, by
/// parameter.
using TensorOfParameter = std::map<std::string, std::string>;
TensorOfParameter stored_tensor_names(const ModelDescription& model);

/// Throws ConfigError if parameters that one tensor of the Hugging Face model holds have
/// different weight decays, or if only some of them are frozen: LAMB has one ratio for
/// the tensor.
void check_ratio_groups(const ModelDescription& model, const ParamGroups& groups);

}  // namespace longhaul::optim
