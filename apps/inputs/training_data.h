#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// Returns the store of the documents that `data build --holdout` held out of `store`,
/// which lies beside it; an empty path if there is none.
fs::path held_out_of(const fs::path& store);

/// Returns the arguments to train on. Leaves out repeated arguments, and stores that were
/// held out of another argument, since they are for validation alone; a warning names
/// each. Patterns, spellings and links that lead to the same place count as equal. Throws
/// InputError if an argument names data to train on together with held-out data, or a
/// part of what another argument names.
std::vector<std::string> training_data(const std::vector<std::string>& arguments);

}  // namespace longhaul::apps
