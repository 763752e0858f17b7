#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "apps/styled_text.h"

namespace longhaul::apps {

/// A table whose first row is its head. Every row has as many cells as the head.
struct TextTable {
  std::vector<std::vector<Pieces>> rows;
  /// Of each column: its cells are pushed to the right.
  std::vector<bool> right;
};

/// The widths of columns that together have so much room: each what it naturally takes
/// where that fits; else narrow columns keep theirs and the others share what is left.
std::vector<size_t> column_widths(const std::vector<size_t>& natural, size_t room);

/// The table in so many columns of a terminal: aligned, cells wrapped. Where its columns
/// would be too narrow to read, each row is a list of "head: cell".
std::vector<std::string> table_lines(const TextTable& table, size_t columns, bool colour);

}  // namespace longhaul::apps
