#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace longhaul::config {

/// Returns what a text that is no TOML is instead, and what to do: a file of YAML or
/// JSON, or a script. Returns an empty text if it looks like TOML. `name` is the file's
/// name.
std::string what_file_is(std::string_view text, std::string_view name);

/// Returns what a file that is no text is instead, and what to do, as the end of a
/// message: a compressed file, text in UTF-16, weights. Returns an empty text for any
/// other file. `name` is the file's name.
std::string what_bytes_are(std::string_view text, std::string_view name);

/// Returns what a line that is no TOML is instead, and how TOML writes it: YAML's
/// "key: value", Python's True, a text without quotes, and the like. Returns an empty
/// text for any other line. Lines are counted from 1.
std::string what_line_is(std::string_view text, size_t line);

/// Returns what a value of `--set section.key=value` that is no TOML is instead, and how
/// TOML writes it. Returns an empty text for any other value.
std::string what_value_is(std::string_view value);

/// Returns whether a number in TOML begins in this column of a line and has an exponent
/// ("1e6"). Columns are counted from 1, in code points, up to 1000.
bool is_exponent(std::string_view line, size_t column);

}  // namespace longhaul::config
