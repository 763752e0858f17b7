#include "longhaul/monitor/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "longhaul/monitor/axis.h"
#include "longhaul/monitor/html.h"

namespace longhaul::monitor {
namespace {

constexpr double kMapWidth = 320.0;
constexpr double kMapLeft = 34.0;
constexpr double kMapRight = 304.0;
constexpr double kMapTop = 4.0;
constexpr double kBelowMap = 20.0;
constexpr double kRowHeight = 9.0;
constexpr double kLeastHeight = 72.0;
constexpr double kMostHeight = 224.0;

/// The upper ends of the levels of colour, without the last. A load of 1 is an even
/// share: what each expert has if all have the same. A value at the end of a level
/// belongs to the next level.
constexpr std::array<double, 7> kLevelEnds = {0.05, 0.25, 0.5, 0.8, 1.25, 2.0, 4.0};
constexpr size_t kLevels = kLevelEnds.size() + 1;
constexpr std::array<const char*, kLevels> kLevelNames = {
    "below 0.05",  "0.05 to 0.25", "0.25 to 0.5", "0.5 to 0.8",
    "0.8 to 1.25", "1.25 to 2",    "2 to 4",      "4 and more"};

size_t level_of(double value) {
  return static_cast<size_t>(std::ranges::upper_bound(kLevelEnds, value) -
                             kLevelEnds.begin());
}

using Out = std::back_insert_iterator<std::string>;

/// Draws all cells of a level as one path, whose unit is a cell: neighbours in a row are
/// one line, as broad as a cell is high.
std::string draw_cells(const HeatMap& map) {
  std::array<std::string, kLevels> paths;
  const size_t columns = map.steps.size();
  for (size_t row = 0; row < map.rows; ++row) {
    const double* const values = map.values.data() + row * columns;
    for (size_t begin = 0, end = 0; begin < columns; begin = end) {
      const bool known = std::isfinite(values[begin]);
      const size_t level = known ? level_of(values[begin]) : 0;
      const auto same = [&](double value) {
        return std::isfinite(value) == known && (!known || level_of(value) == level);
      };
      end = begin + 1;
      while (end < columns && same(values[end])) ++end;
      if (!known) continue;
      fmt::format_to(Out(paths[level]), "M{} {}h{}", begin, row, end - begin);
    }
  }
  std::string svg;
  for (size_t level = 0; level < kLevels; ++level) {
    if (paths[level].empty()) continue;
    fmt::format_to(Out(svg), "<path class=\"l{}\" d=\"{}\"/>", level, paths[level]);
  }
  return svg;
}

/// Writes the first step of the first column, then the distances to those of the other
/// columns, and each value in percent of an even share.
std::string values_for_script(const HeatMap& map) {
  std::string steps;
  double before = 0.0;
  for (const double step : map.steps) {
    fmt::format_to(Out(steps), "{}{:.12g}", steps.empty() ? "" : " ", step - before);
    before = step;
  }
  std::string percent;
  for (const double value : map.values) {
    if (!percent.empty()) percent += ' ';
    percent += std::isfinite(value) ? fmt::format("{:.0f}", 100.0 * value) : "x";
  }
  return fmt::format("data-rows=\"{}\" data-x=\"{}\" data-percent=\"{}\"", map.rows,
                     steps, percent);
}

void draw_labels(const HeatMap& map, double bottom, std::string& svg) {
  const auto text = [&](double x, double y, const char* anchor, const std::string& what) {
    fmt::format_to(Out(svg),
                   "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y,
                   anchor, escape(what));
  };
  text(kMapLeft - 5.0, kMapTop + 8.0, "end", "0");
  if (map.rows > 1) text(kMapLeft - 5.0, bottom, "end", std::to_string(map.rows - 1));
  text(kMapLeft - 5.0, bottom + 14.0, "end", "step");
  const Axis steps = linear_axis(map.steps.front(), map.last, 4, Unit::Number, false);
  for (const Tick& tick : steps.ticks) {
    const double x = kMapLeft + steps.place(tick.value) * (kMapRight - kMapLeft);
    text(x, bottom + 14.0, "middle", tick.label);
  }
}

}  // namespace

std::string heat_panel(const HeatMap& map) {
  if (map.rows == 0 || map.steps.empty()) return "";
  const double height =
      std::clamp(kRowHeight * static_cast<double>(map.rows), kLeastHeight, kMostHeight);
  const double width = kMapRight - kMapLeft;
  std::string svg = fmt::format(
      "<div class=\"map\"><b>{0}</b><svg class=\"heat\" viewBox=\"0 0 {1:.0f} {2:.0f}\" "
      "role=\"img\" aria-label=\"{0}: load of each expert by step\" {3}>",
      escape(map.title), kMapWidth, kMapTop + height + kBelowMap, values_for_script(map));
  const double row = height / static_cast<double>(map.rows);
  fmt::format_to(Out(svg),
                 "<g shape-rendering=\"crispEdges\" transform=\"translate({} {:.6g}) "
                 "scale({:.6g} {:.6g})\">{}</g>",
                 kMapLeft, kMapTop + 0.5 * row,
                 width / static_cast<double>(map.steps.size()), row, draw_cells(map));
  fmt::format_to(
      Out(svg),
      "<rect class=\"frame\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{:.0f}\"/>",
      kMapLeft, kMapTop, width, height);
  draw_labels(map, kMapTop + height, svg);
  return svg + "</svg></div>";
}

std::string heat_legend() {
  std::string names;
  for (size_t level = 0; level < kLevels; ++level) {
    fmt::format_to(
        Out(names),
        "<span class=\"name\"><svg class=\"swatch\" viewBox=\"0 0 12 12\">"
        "<rect class=\"cell l{}\" width=\"12\" height=\"12\" rx=\"3\"/></svg>{}"
        "</span>",
        level, kLevelNames[level]);
  }
  return "<div class=\"legend\">" + names + "</div>";
}

}  // namespace longhaul::monitor
