#pragma once

#include <string>
#include <string_view>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// InputError of this area where anything has the path's name, a link to nothing among
/// it: what a person has is never overwritten.
void refuse_existing(const fs::path& path, const std::string& area);

/// Writes a file that is not there yet, and makes the directories that it lies in. The
/// whole text appears at once. InputError where something has the name meanwhile.
void write_new(const fs::path& path, std::string_view text, const std::string& area);

}  // namespace longhaul::apps
