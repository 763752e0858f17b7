#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "apps/pages/styled_text.h"

namespace longhaul::apps {

/// A table whose first row is its head. Every row has as many cells as the head.
struct TextTable {
  std::vector<std::vector<Pieces>> rows;
  /// For each column, whether its cells are aligned to the right.
  std::vector<bool> right;
};

/// Returns the widths of columns that share `room`. If all columns fit, each has its
/// natural width. Else narrow columns have it, and the others share what is left.
std::vector<size_t> column_widths(const std::vector<size_t>& natural, size_t room);

/// Returns the table as lines of at most `columns` columns of a terminal, with aligned
/// and wrapped cells. Where its columns would be too narrow to read, each row is a list
/// of "head: cell".
std::vector<std::string> table_lines(const TextTable& table, size_t columns, bool colour);

}  // namespace longhaul::apps
