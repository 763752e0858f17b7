#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace longhaul::monitor {

/// How the numbers of an axis are written.
enum class Unit { Number, Bytes, Percent };

struct Tick {
  double value = 0.0;
  std::string label;
};

/// One axis of a plot: it says where a value lies, and at which values a grid line is
/// drawn.
struct Axis {
  double low = 0.0;
  double high = 1.0;
  bool log = false;
  std::vector<Tick> ticks;

  /// Returns where a value lies: 0 at `low`, 1 at `high`, and beyond these outside. NaN
  /// stays NaN.
  double place(double value) const;
};

/// Makes an axis from `low` to `high` or a little beyond, with about `ticks` ticks at 1,
/// 2 or 5 times a power of ten. With `widen` the ends are moved to ticks.
Axis linear_axis(double low, double high, size_t ticks, Unit unit, bool widen);
/// Makes a logarithmic axis between positive numbers. Its ticks are powers of ten, with 2
/// and 5 between if there are few.
Axis log_axis(double low, double high, size_t ticks, Unit unit);

/// Returns the text of a number that stands alone: "123.4k", "3.20e-05", "84.0 GB",
/// "40.1%".
std::string number_label(double value, Unit unit);

}  // namespace longhaul::monitor
