#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul {

/// Returns the lines of a text without their ends. The last line may lack its end.
std::vector<std::string_view> lines_of(std::string_view text);

/// Returns the first line of a small file; nothing where the file cannot be read.
std::string first_line(const fs::path& file);

}  // namespace longhaul
