#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// The store that `data build --holdout` made of the same text, beside this one; empty
/// where there is none.
fs::path held_out_of(const fs::path& store);

/// The arguments without those that are for validation alone, since they were held out of
/// another argument, and without repetitions; a warning tells of each. A place is the
/// same by any pattern, spelling or link. InputError where an argument names both what is
/// to be trained on and what is not, or a part of what another argument names.
std::vector<std::string> training_data(const std::vector<std::string>& arguments);

}  // namespace longhaul::apps
