#pragma once

#include <functional>

#include "longhaul/base/file.h"

namespace longhaul::checkpoint {

/// Calls `use` with the model that a person named. Where that is a run, or a directory of
/// checkpoints, and its newest checkpoint turns out to be damaged while it is read,
/// `tell` gets a line and `use` is called again with the next older one that has all its
/// files. An error that is not of the files, or of the last of them, goes through. `use`
/// must leave nothing behind when it throws.
void with_fall_back(const fs::path& named,
                    const std::function<void(const fs::path&)>& use,
                    const std::function<void(const std::string&)>& tell);

}  // namespace longhaul::checkpoint
