#include "longhaul/monitor/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "longhaul/monitor/html.h"

namespace longhaul::monitor {
namespace {

constexpr double kWidth = 640.0;
constexpr double kHeight = 246.0;
constexpr double kLeft = 62.0;
constexpr double kRight = 620.0;
constexpr double kTop = 14.0;
constexpr double kBottom = 222.0;
constexpr size_t kColumns = 558;
constexpr double kLogRatio = 30.0;
/// More dots and marks than these are thinned out, since a page must not grow with the
/// run.
constexpr size_t kMostDots = 400;
constexpr size_t kMostMarks = 300;

struct Limits {
  double x_low = std::numeric_limits<double>::infinity();
  double x_high = -x_low;
  double y_low = x_low;
  double y_high = -x_low;
  bool any() const { return y_low <= y_high; }
};

Limits limits_of(const std::vector<Curve>& curves) {
  Limits limits;
  for (const Curve& curve : curves) {
    for (const Point& point : curve.points) {
      limits.x_low = std::min(limits.x_low, point.x);
      limits.x_high = std::max(limits.x_high, point.x);
      if (!std::isfinite(point.y)) continue;
      limits.y_low = std::min(limits.y_low, point.y);
      limits.y_high = std::max(limits.y_high, point.y);
    }
  }
  return limits;
}

Axis y_axis(const Limits& limits, const PlotOptions& options) {
  if (options.scale == Scale::FromZero) {
    return linear_axis(std::min(0.0, limits.y_low), std::max(0.0, limits.y_high * 1.02),
                       5, options.unit, true);
  }
  if (limits.y_low > 0.0 && limits.y_high > kLogRatio * limits.y_low) {
    return log_axis(limits.y_low, limits.y_high, 6, options.unit);
  }
  return linear_axis(limits.y_low, limits.y_high, 5, options.unit, true);
}

struct Canvas {
  Axis x;
  Axis y;
  double across(double value) const { return kLeft + x.place(value) * (kRight - kLeft); }
  double up(double value) const {
    const double place = y.place(value);
    return kBottom - std::clamp(place, 0.0, 1.0) * (kBottom - kTop);
  }
};

using Out = std::back_insert_iterator<std::string>;

void draw_grid(const Canvas& canvas, std::string& svg) {
  const Out out(svg);
  svg += "<g class=\"grid\">";
  for (const Tick& tick : canvas.y.ticks) {
    fmt::format_to(out, "<path d=\"M{:.1f} {:.1f}H{:.1f}\"/>", kLeft,
                   canvas.up(tick.value), kRight);
  }
  svg += "</g><g class=\"axis\">";
  for (const Tick& tick : canvas.y.ticks) {
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
                   kLeft - 7.0, canvas.up(tick.value) + 3.5, escape(tick.label));
  }
  for (const Tick& tick : canvas.x.ticks) {
    const double x = canvas.across(tick.value);
    fmt::format_to(out, "<path d=\"M{:.1f} {:.1f}v4\"/>", x, kBottom);
    fmt::format_to(out,
                   "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", x,
                   kBottom + 16.0, escape(tick.label));
  }
  fmt::format_to(out, "<path d=\"M{:.1f} {:.1f}H{:.1f}\"/>", kLeft, kBottom, kRight);
  fmt::format_to(out, "<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">step</text>",
                 kLeft - 7.0, kBottom + 16.0);
  if (canvas.y.log) {
    fmt::format_to(out, "<text x=\"{:.0f}\" y=\"9.5\">log scale</text>", kLeft);
  }
  svg += "</g>";
}

void draw_marks(const Canvas& canvas, const std::vector<PlotMark>& marks,
                std::string& svg) {
  const Out out(svg);
  const size_t every = marks.size() / kMostMarks + 1;
  for (size_t i = 0; i < marks.size(); i += every) {
    const double place = canvas.x.place(marks[i].x);
    if (!(place >= -0.001 && place <= 1.001)) continue;
    fmt::format_to(out,
                   "<path class=\"mark {}\" data-at=\"{:.12g}\" d=\"M{:.1f} "
                   "{:.1f}V{:.1f}\"><title>{}</title></path>",
                   marks[i].style, marks[i].x, canvas.across(marks[i].x), kTop, kBottom,
                   escape(marks[i].title));
  }
}

/// Draws a band from the lowest to the highest value of each column and a line of the
/// means. Columns without a point are passed over.
void draw_columns(const Canvas& canvas, const Curve& curve, size_t count,
                  std::string& svg) {
  const std::vector<PixelColumn> columns = by_column(curve.points, canvas.x, count);
  const double width = (kRight - kLeft) / static_cast<double>(count);
  std::string upper;
  std::string lower;
  std::string line;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].points == 0) continue;
    const double x = kLeft + (static_cast<double>(i) + 0.5) * width;
    const char* pen = line.empty() ? "M" : "L";
    fmt::format_to(Out(upper), "{}{:.1f} {:.1f}", pen, x, canvas.up(columns[i].high));
    fmt::format_to(Out(line), "{}{:.1f} {:.1f}", pen, x, canvas.up(columns[i].mean));
    lower.insert(0, fmt::format("L{:.1f} {:.1f}", x, canvas.up(columns[i].low)));
  }
  if (line.empty()) return;
  fmt::format_to(Out(svg), "<path class=\"band {}\" d=\"{}{}Z\"/>", curve.style, upper,
                 lower);
  fmt::format_to(Out(svg), "<path class=\"line {}\" d=\"{}\"/>", curve.style, line);
}

/// A point without neighbours has no length: a small ring around it shows it.
constexpr const char* kLonePoint = "m-2.2 0a2.2 2.2 0 1 0 4.4 0a2.2 2.2 0 1 0-4.4 0";

void draw_points(const Canvas& canvas, const Curve& curve, std::string& svg) {
  std::string line;
  size_t together = 0;
  const auto end_piece = [&] {
    if (together == 1) line += kLonePoint;
    together = 0;
  };
  for (const Point& point : curve.points) {
    if (!std::isfinite(point.y)) {
      end_piece();
      continue;
    }
    fmt::format_to(std::back_inserter(line), "{}{:.1f} {:.1f}", together == 0 ? "M" : "L",
                   canvas.across(point.x), canvas.up(point.y));
    ++together;
  }
  end_piece();
  if (line.empty()) return;
  fmt::format_to(Out(svg), "<path class=\"line {}\" d=\"{}\"/>", curve.style, line);
}

void draw_dots(const Canvas& canvas, const Curve& curve, std::string& svg) {
  const size_t every = curve.points.size() / kMostDots + 1;
  for (size_t i = 0; i < curve.points.size(); i += every) {
    const Point& point = curve.points[i];
    if (!std::isfinite(point.y)) continue;
    fmt::format_to(Out(svg),
                   "<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" "
                   "data-at=\"{:.12g}\" data-value=\"{:.6g}\"><title>{} step {:.0f}: "
                   "{:.5g}</title></circle>",
                   curve.style, canvas.across(point.x), canvas.up(point.y), point.x,
                   point.y, escape(curve.name), point.x, point.y);
  }
}

/// Draws a small triangle at the top where a value is not finite.
void draw_not_finite(const Canvas& canvas, const Curve& curve, std::string& svg) {
  size_t drawn = 0;
  for (const Point& point : curve.points) {
    if (std::isfinite(point.y)) continue;
    if (++drawn > kMostDots) return;
    fmt::format_to(Out(svg),
                   "<path class=\"nan\" data-at=\"{:.12g}\" d=\"M{:.1f} {:.1f}l-4 "
                   "-7h8z\"><title>{} at step {:.0f} is not finite</title></path>",
                   point.x, canvas.across(point.x), kTop + 7.0, escape(curve.name),
                   point.x);
  }
}

/// Adds a number to a list for the page's script.
void add_number(std::string& list, double number) {
  if (!list.empty()) list += ' ';
  // The word x stands for a value that is not finite.
  list += std::isfinite(number) ? fmt::format("{:.5g}", number) : "x";
}

/// Begins the group of a curve with the values for the page's script: `data-x` has the
/// first step, and then the distances between steps. Many points are kept as columns:
/// the mean, lowest and highest value of each, and its first step.
void begin_curve(const Curve& curve, size_t kept, std::string& svg) {
  const double from = curve.points.front().x;
  std::string x;
  std::string y;
  std::string more;
  double before = 0.0;
  const auto add = [&](double at, double value) {
    fmt::format_to(Out(x), "{}{:.12g}", x.empty() ? "" : " ", at - before);
    before = at;
    add_number(y, value);
  };
  if (curve.points.size() <= kept) {
    for (const Point& point : curve.points) add(point.x, point.y);
  } else {
    std::string low;
    std::string high;
    Axis axis;
    axis.low = from;
    axis.high = curve.points.back().x;
    for (const PixelColumn& column : by_column(curve.points, axis, kept)) {
      if (column.points == 0) continue;
      add(column.first, column.mean);
      add_number(low, column.low);
      add_number(high, column.high);
    }
    more = fmt::format(" data-low=\"{}\" data-high=\"{}\" data-end=\"{:.12g}\"", low,
                       high, axis.high);
  }
  fmt::format_to(Out(svg),
                 "<g class=\"curve\" data-name=\"{}\" data-style=\"{}\" data-x=\"{}\" "
                 "data-y=\"{}\"{}>",
                 escape(curve.name), curve.style, x, y, more);
}

void draw_curve(const Canvas& canvas, const Curve& curve, size_t kept, std::string& svg) {
  if (curve.points.empty()) return;
  begin_curve(curve, kept, svg);
  if (curve.points.size() > std::min(kept, kColumns)) {
    draw_columns(canvas, curve, std::min(kept, kColumns), svg);
  } else {
    draw_points(canvas, curve, svg);
  }
  if (curve.dots) draw_dots(canvas, curve, svg);
  draw_not_finite(canvas, curve, svg);
  svg += "</g>";
}

const char* unit_name(Unit unit) {
  if (unit == Unit::Bytes) return "bytes";
  return unit == Unit::Percent ? "percent" : "number";
}

std::string no_values(const PlotOptions& options) {
  return fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\"><text "
      "class=\"none\" "
      "x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">no values yet</text></svg>",
      kWidth, kHeight, escape(options.title), kWidth / 2, kHeight / 2);
}

/// Returns the names of the curves beside their colours. Lines break only between two
/// names.
std::string legend(const std::vector<Curve>& curves) {
  std::string names;
  for (const Curve& curve : curves) {
    if (!curve.name.empty()) names += name_with_key(curve.style, curve.name);
  }
  return names.empty() ? "" : "<div class=\"legend\">" + names + "</div>";
}

}  // namespace

std::vector<PixelColumn> by_column(const std::vector<Point>& points, const Axis& x,
                                   size_t columns) {
  std::vector<PixelColumn> out(columns);
  if (columns == 0) return out;
  for (const Point& point : points) {
    const double place = x.place(point.x);
    if (!std::isfinite(point.y) || !(place >= 0.0 && place <= 1.0)) continue;
    const auto at =
        std::min(columns - 1, static_cast<size_t>(place * static_cast<double>(columns)));
    PixelColumn& column = out[at];
    column.low = column.points == 0 ? point.y : std::min(column.low, point.y);
    column.high = column.points == 0 ? point.y : std::max(column.high, point.y);
    if (column.points == 0) column.first = point.x;
    ++column.points;
    column.mean += (point.y - column.mean) / static_cast<double>(column.points);
  }
  return out;
}

std::string draw_plot(const PlotOptions& options, const std::vector<Curve>& curves,
                      const std::vector<PlotMark>& marks) {
  const Limits limits = limits_of(curves);
  if (!limits.any()) return no_values(options);
  Canvas canvas;
  canvas.x = linear_axis(limits.x_low, limits.x_high, 7, Unit::Number, false);
  canvas.y = y_axis(limits, options);
  std::string svg = fmt::format(
      "<svg class=\"plot\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{} by "
      "step\" data-unit=\"{}\" data-range=\"{:.12g} {:.12g}\"{}>",
      kWidth, kHeight, escape(options.title), unit_name(options.unit), canvas.x.low,
      canvas.x.high, options.scale == Scale::FromZero ? " data-zero=\"\"" : "");
  draw_grid(canvas, svg);
  draw_marks(canvas, marks, svg);
  for (const Curve& curve : curves) draw_curve(canvas, curve, options.kept, svg);
  svg += "</svg>";
  return svg;
}

std::string name_with_key(const std::string& style, const std::string& name) {
  return fmt::format("<span class=\"name\"><i class=\"key {}\"></i>{}</span>", style,
                     escape(name));
}

std::string plot_card(const PlotOptions& options, const std::vector<Curve>& curves,
                      const std::vector<PlotMark>& marks, const std::string& words) {
  return fmt::format("<section class=\"card\"><h3>{}</h3>{}{}{}</section>",
                     escape(options.title), words, legend(curves),
                     draw_plot(options, curves, marks));
}

}  // namespace longhaul::monitor
