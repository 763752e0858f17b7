#pragma once

#include <string>
#include <vector>

#include "longhaul/families/description/description.h"

namespace longhaul {

/// Returns the name of the tensor of Hugging Face's files that holds a parameter.
const std::string& file_name(const ParameterDescription& parameter);
/// Returns the name of the tensor in which some files hold a parameter together with
/// those of all experts; empty if no files do.
std::string together_name(const ParameterDescription& parameter);

/// Returns every name by which a person may mean a parameter, except together_name().
/// Each name occurs once. The parameter's own name comes first, then the name of the
/// stored tensor that holds the parameter. The names of that tensor in older files
/// follow: without the model's optional prefix, and with old endings.
std::vector<std::string> names_of(const ModelDescription& model,
                                  const ParameterDescription& parameter);

}  // namespace longhaul
