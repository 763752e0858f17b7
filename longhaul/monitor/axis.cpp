#include "longhaul/monitor/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/text.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kMostTicks = 50;

/// Returns the step of 1, 2 or 5 times a power of ten that gives about `ticks` ticks over
/// `range`.
double nice_step(double range, size_t ticks) {
  const double rough = range / static_cast<double>(std::max<size_t>(ticks, 1));
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double factor = rough / power;
  constexpr double kSlack = 1.0 + 1e-9;
  if (factor <= 1.0 * kSlack) return power;
  if (factor <= 2.0 * kSlack) return 2.0 * power;
  return factor <= 5.0 * kSlack ? 5.0 * power : 10.0 * power;
}

/// Returns how few decimals tell a step apart: 0.25 needs two, 20 none.
int decimals_of(double step) {
  if (!(step > 0.0)) return 2;
  return std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 9);
}

/// Writes a number in the form that suits the largest number of its axis.
std::string plain_number(double value, double step, double largest) {
  if (value == 0.0) return "0";
  if (largest >= 1e15 || largest < 1e-3) {
    const double finest = step > 0.0 ? step : largest;
    const double digits =
        std::floor(std::log10(largest)) - std::floor(std::log10(finest));
    return fmt::format("{:.{}e}", value, std::clamp(static_cast<int>(digits), 0, 6));
  }
  const char* const suffixes[] = {"", "k", "M", "G", "T"};
  size_t suffix = 0;
  double scale = 1.0;
  while (largest >= 10'000.0 && largest / scale >= 1000.0 && suffix < 4) {
    scale *= 1000.0;
    ++suffix;
  }
  return fmt::format("{:.{}f}{}", value / scale, decimals_of(step / scale),
                     suffixes[suffix]);
}

std::string tick_label(double value, Unit unit, double step, double largest) {
  if (unit == Unit::Bytes) return human_bytes(value);
  if (unit == Unit::Percent) {
    return fmt::format("{:.{}f}%", 100.0 * value, decimals_of(100.0 * step));
  }
  return plain_number(value, step, largest);
}

}  // namespace

double Axis::place(double value) const {
  if (log) {
    return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
  }
  return (value - low) / (high - low);
}

std::string number_label(double value, Unit unit) {
  if (!std::isfinite(value)) return "not finite";
  if (unit == Unit::Bytes) return human_bytes(value);
  if (unit == Unit::Percent) return fmt::format("{:.1f}%", 100.0 * value);
  const double size = std::abs(value);
  if (size >= 1e5 || size == 0.0) return plain_number(value, size / 100.0, size);
  return size < 1e-3 ? fmt::format("{:.2e}", value) : fmt::format("{:.4g}", value);
}

Axis linear_axis(double low, double high, size_t ticks, Unit unit, bool widen) {
  // There may be one value only, or values so near that no double lies between them. Such
  // an axis gets room on both sides.
  const double size = std::max(std::abs(low), std::abs(high));
  if (!(high - low > size * 1e-12)) {
    const double room = size > 0.0 ? size * 0.05 : 1.0;
    low -= room;
    high += room;
  }
  Axis axis;
  const double step = nice_step(high - low, ticks);
  if (widen) {
    low = std::floor(low / step + 1e-9) * step;
    high = std::ceil(high / step - 1e-9) * step;
  }
  axis.low = low;
  axis.high = high;
  const double largest = std::max(std::abs(low), std::abs(high));
  const double first = std::ceil(low / step - 1e-9);
  for (size_t i = 0; i < kMostTicks; ++i) {
    const double value = (first + static_cast<double>(i)) * step;
    if (value > high + step * 1e-9) break;
    axis.ticks.push_back({value, tick_label(value, unit, step, largest)});
  }
  return axis;
}

Axis log_axis(double low, double high, size_t ticks, Unit unit) {
  if (!(high > low * 1.0001)) {
    low *= 0.9;
    high *= 1.1;
  }
  Axis axis;
  axis.log = true;
  axis.low = low / 1.1;
  axis.high = high * 1.1;
  const double decades = std::log10(axis.high / axis.low);
  const bool between = decades * 3.0 <= static_cast<double>(ticks) * 1.5;
  const int every = std::max(
      1, static_cast<int>(
             std::ceil(decades / static_cast<double>(std::max<size_t>(ticks, 1)))));
  const int first = static_cast<int>(std::floor(std::log10(axis.low)));
  const int last = static_cast<int>(std::ceil(std::log10(axis.high)));
  for (int power = first; power <= last && axis.ticks.size() < kMostTicks;
       power += every) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, power);
      if (value < axis.low || value > axis.high || (factor > 1.0 && !between)) continue;
      axis.ticks.push_back({value, number_label(value, unit)});
    }
  }
  return axis;
}

}  // namespace longhaul::monitor
