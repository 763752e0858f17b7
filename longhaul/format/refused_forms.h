#pragma once

#include <string>

#include "longhaul/base/file.h"

namespace longhaul::format {

/// Returns what a path is where it is a model in a form that is not trained from: an
/// adapter's directory, or GGUF. The sentence says what to take instead. For any other
/// path the text is empty.
std::string other_form(const fs::path& path);

}  // namespace longhaul::format
