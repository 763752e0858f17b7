#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// Returns the store of the documents that `data build --holdout` held out of `store`,
/// which lies beside it; empty where there is none.
fs::path held_out_of(const fs::path& store);

/// Returns the arguments without those that are for validation alone, since they were
/// held out of another argument, and without repetitions; a warning tells about each. A
/// place is the same by any pattern, spelling or link. Throws InputError where an
/// argument names both what is to be trained on and what is not, or a part of what
/// another argument names.
std::vector<std::string> training_data(const std::vector<std::string>& arguments);

}  // namespace longhaul::apps
