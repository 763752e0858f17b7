#pragma once

#include <string>

#include "longhaul/base/file.h"

namespace longhaul::format {

/// Returns what a path is if it holds a model in a form from which no training starts: an
/// adapter's directory, or GGUF. The sentence also says what to take instead. For any
/// other path the text is empty.
std::string other_form(const fs::path& path);

}  // namespace longhaul::format
