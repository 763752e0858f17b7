#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/config/value.h"
#include "longhaul/translate/source.h"

namespace longhaul::translate {

/// What a YAML file says, key by key: "optimizer.zero_stage"; items of a list share their
/// list's name. The text is hostile: depth and number of entries have bounds, and an
/// alias
/// (*name) is refused, so that nothing grows. InputError with file, line and column.
std::vector<Said> read_yaml(std::string_view text, const std::string& name);

/// The same of TOML.
std::vector<Said> said_of(const config::Table& table);

}  // namespace longhaul::translate
