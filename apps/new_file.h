#pragma once

#include <string>
#include <string_view>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// Throws InputError of this area if anything has the path's name, even a link to
/// nothing: what a person has is never overwritten.
void refuse_existing(const fs::path& path, const std::string& area);

/// Writes a file that does not exist yet, and makes the directories above it. The whole
/// text appears at once. Throws InputError if another process has made something of this
/// name before the text appears.
void write_new(const fs::path& path, std::string_view text, const std::string& area);

}  // namespace longhaul::apps
