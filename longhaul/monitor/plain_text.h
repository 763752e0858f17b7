#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "longhaul/base/json.h"

namespace longhaul::monitor {

/// Text of a file or another machine as it may be shown: invalid UTF-8, control
/// characters (escape sequences begin with one) and characters that turn the direction of
/// text or take no place are replaced by '?', line ends and tabs by a space. At most
/// `longest` bytes, then "...".
std::string plain_text(std::string_view text, size_t longest = 400);

/// A text of an outside object, plain; empty where it is absent or of another type.
std::string text_at(const Json& object, const char* key, size_t longest = 400);

/// Columns that valid UTF-8 takes on a terminal, about: East Asian characters and
/// pictographs take two, combining ones none.
size_t text_columns(std::string_view utf8);

/// The first characters that fit into so many columns; a cut is marked with "…".
std::string cut_to_columns(std::string_view utf8, size_t columns);

/// cut_to_columns, filled with spaces behind (or, with `right`, in front).
std::string fit_to_columns(std::string_view utf8, size_t columns, bool right = false);

}  // namespace longhaul::monitor
