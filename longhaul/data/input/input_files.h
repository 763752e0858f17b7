#pragma once

#include <string>
#include <vector>

#include "longhaul/data/input/input_set.h"

namespace longhaul::data {

/// The files that the options name, each looked at; see InputSet.
std::vector<InputFile> find_input_files(const InputOptions& options);

}  // namespace longhaul::data
