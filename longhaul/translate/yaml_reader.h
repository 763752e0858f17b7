#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/config/value.h"
#include "longhaul/translate/flags_source.h"

namespace longhaul::translate {

/// Reads the settings of a YAML file, key by key ("optimizer.zero_stage"); items of a
/// list share the list's name. The text may be hostile: depth and number of entries are
/// limited, and an alias (*name) is refused, so that the result cannot grow. Throws
/// InputError with file, line and column.
std::vector<Said> read_yaml(std::string_view text, const std::string& name);

/// Returns the settings of a parsed TOML file in the form in which read_yaml() returns
/// settings.
std::vector<Said> said_of(const config::Table& table);

}  // namespace longhaul::translate
