#pragma once

#include <string>
#include <vector>

#include "longhaul/monitor/axis.h"

namespace longhaul::monitor {

struct Point {
  double x = 0.0;
  double y = 0.0;  ///< NaN and infinity are marked, not drawn
};

/// What a column of pixels shows of many points.
struct PixelColumn {
  double low = 0.0;
  double high = 0.0;
  double mean = 0.0;
  double first = 0.0;  ///< x of the first finite point
  size_t points = 0;   ///< number of finite points; 0: a hole in the curve
};

/// Returns the lowest, highest and mean value by column, so that a spike of one point in
/// a million keeps its height.
std::vector<PixelColumn> by_column(const std::vector<Point>& points, const Axis& x,
                                   size_t columns);

struct Curve {
  std::string name;           ///< name in the legend; empty: none
  std::string style;          ///< CSS class that gives the colour
  std::vector<Point> points;  ///< by ascending x
  bool dots = false;          ///< few values: each with a dot and a tooltip
};

/// A line across the plot at one x.
struct PlotMark {
  double x = 0.0;
  std::string style;  ///< CSS class
  std::string title;  ///< tooltip
};

enum class Scale {
  FromZero,  ///< linear, the axis begins at 0
  Auto       ///< linear, or logarithmic where values differ by more than 30 times
};

struct PlotOptions {
  std::string title;
  Unit unit = Unit::Number;
  Scale scale = Scale::Auto;
  /// A curve with more points than this is reduced to this many columns.
  size_t kept = 1000;
};

/// Draws one plot as SVG: valid XML, complete without the script. Colours come from the
/// page's style sheet, and attributes have the values for the page's script.
std::string draw_plot(const PlotOptions& options, const std::vector<Curve>& curves,
                      const std::vector<PlotMark>& marks);

/// Returns a name beside a swatch of its curve's colour, as HTML that stays on one line
/// if there is room.
std::string name_with_key(const std::string& style, const std::string& name);

/// Returns a plot under its title, with `words` (HTML) and a legend between, in a card.
std::string plot_card(const PlotOptions& options, const std::vector<Curve>& curves,
                      const std::vector<PlotMark>& marks, const std::string& words = "");

}  // namespace longhaul::monitor
