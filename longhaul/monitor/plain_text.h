#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace longhaul::monitor {

/// Returns text of a file or another machine as it may be shown, at most `longest` bytes,
/// then "...". Line ends and tabs become a space. A '?' replaces invalid UTF-8, control
/// characters (escape sequences begin with one), and characters that turn the direction
/// of text or take no place.
std::string plain_text(std::string_view text, size_t longest = 400);

/// Returns about how many columns valid UTF-8 takes on a terminal: East Asian characters
/// and pictographs take two, combining characters none.
size_t text_columns(std::string_view utf8);

/// Returns the first characters that fit into `columns` columns. A cut is marked with
/// "…".
std::string cut_to_columns(std::string_view utf8, size_t columns);

/// Returns cut_to_columns, filled with spaces behind (or, with `right`, in front).
std::string fit_to_columns(std::string_view utf8, size_t columns, bool right = false);

}  // namespace longhaul::monitor
