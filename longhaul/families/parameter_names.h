#pragma once

#include <string>
#include <vector>

#include "longhaul/families/description.h"

namespace longhaul {

/// The tensor of Hugging Face's files that a parameter is or lies in.
const std::string& file_name(const ParameterDescription& parameter);

/// Every name by which a person may mean a parameter: its own; that of the tensor of the
/// files that it is or lies in; and what older files call that tensor (without the
/// model's optional prefix, with old endings). Each name once, the parameter's own first.
std::vector<std::string> names_of(const ModelDescription& model,
                                  const ParameterDescription& parameter);

}  // namespace longhaul
