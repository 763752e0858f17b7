#include "apps/pages/text_table.h"

#include <algorithm>
#include <numeric>

namespace longhaul::apps {
namespace {

constexpr size_t kGap = 2;
/// A column whose cells wrap is at least this wide.
constexpr size_t kNarrowest = 8;

/// Returns for each column the largest measure of its cells.
template <class Measure>
std::vector<size_t> largest(const TextTable& table, const Measure& measure) {
  std::vector<size_t> most(table.rows.front().size(), 1);
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) most[i] = std::max(most[i], measure(row[i]));
  }
  return most;
}

/// Returns "head: cell" of each cell, for windows that are too narrow for columns.
std::vector<std::string> as_lists(const TextTable& table, size_t columns, bool colour) {
  std::vector<std::string> lines;
  for (size_t i = 1; i < table.rows.size(); ++i) {
    if (i > 1) lines.emplace_back();
    for (size_t j = 0; j < table.rows[i].size(); ++j) {
      Pieces cell = table.rows[0][j];
      if (natural_columns(table.rows[i][j]) == 0) continue;
      if (natural_columns(cell) > 0) cell.push_back({": "});
      for (const Piece& piece : table.rows[i][j]) cell.push_back(piece);
      for (const DrawnLine& line : wrapped(cell, columns, colour)) {
        lines.push_back(line.text);
      }
    }
  }
  return lines;
}

/// Returns the lines of one row.
std::vector<std::string> row_lines(const TextTable& table, size_t row,
                                   const std::vector<size_t>& widths, bool colour) {
  std::vector<std::vector<DrawnLine>> cells;
  size_t height = 0;
  for (size_t j = 0; j < widths.size(); ++j) {
    cells.push_back(wrapped(table.rows[row][j], widths[j], colour));
    height = std::max(height, cells.back().size());
  }
  std::vector<std::string> lines(height);
  for (size_t k = 0; k < height; ++k) {
    for (size_t j = 0; j < widths.size(); ++j) {
      const DrawnLine cell = k < cells[j].size() ? cells[j][k] : DrawnLine{};
      const std::string fill(widths[j] - cell.columns, ' ');
      if (j > 0) lines[k] += std::string(kGap, ' ');
      lines[k] += table.right[j] ? fill + cell.text : cell.text + fill;
    }
    lines[k].erase(lines[k].find_last_not_of(' ') + 1);
  }
  return lines;
}

}  // namespace

std::vector<size_t> column_widths(const std::vector<size_t>& natural, size_t room) {
  std::vector<size_t> widths(natural.size(), 0);
  size_t left = natural.size();
  bool changed = true;
  while (left > 0 && changed) {
    changed = false;
    const size_t share = room / left;
    for (size_t i = 0; i < natural.size(); ++i) {
      if (widths[i] != 0 || natural[i] > share) continue;
      widths[i] = natural[i];
      room -= natural[i];
      --left;
      changed = true;
    }
  }
  for (size_t& width : widths) {
    if (width != 0) continue;
    width = room / std::max<size_t>(left, 1);
    room -= width;
    --left;
  }
  return widths;
}

std::vector<std::string> table_lines(const TextTable& table, size_t columns,
                                     bool colour) {
  const size_t gaps = kGap * (table.rows.front().size() - 1);
  const std::vector<size_t> natural = largest(table, natural_columns);
  const std::vector<size_t> words = largest(table, longest_word);
  const std::vector<size_t> widths =
      column_widths(natural, columns > gaps ? columns - gaps : 0);
  for (size_t i = 0; i < widths.size(); ++i) {
    if (widths[i] < std::min(words[i], kNarrowest))
      return as_lists(table, columns, colour);
  }
  std::vector<std::string> lines;
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    rows.push_back(row_lines(table, i, widths, colour));
  }
  const size_t total = std::accumulate(widths.begin(), widths.end(), gaps);
  std::string rule;
  for (size_t i = 0; i < total; ++i) rule += "─";
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == 1) lines.push_back(drawn({rule, kFaint}, colour));
    // An empty line separates a row of several lines from its neighbours.
    if (i > 1 && std::max(rows[i - 1].size(), rows[i].size()) > 1) lines.emplace_back();
    lines.insert(lines.end(), rows[i].begin(), rows[i].end());
  }
  return lines;
}

}  // namespace longhaul::apps
