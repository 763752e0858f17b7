#include "longhaul/monitor/sparkline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace longhaul::monitor {
namespace {

constexpr std::array<const char*, 8> kLevels = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

/// Returns the mean of the finite values; NaN where there is none.
double mean_of(std::span<const double> values) {
  double sum = 0.0;
  size_t count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    sum += value;
    ++count;
  }
  if (count == 0) return std::numeric_limits<double>::quiet_NaN();
  return sum / static_cast<double>(count);
}

}  // namespace

std::string sparkline(std::span<const double> values, size_t columns) {
  columns = std::min(columns, values.size());
  std::vector<double> means;
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (size_t i = 0; i < columns; ++i) {
    const size_t begin = i * values.size() / columns;
    const size_t end = (i + 1) * values.size() / columns;
    means.push_back(mean_of(values.subspan(begin, end - begin)));
    if (!std::isfinite(means.back())) continue;
    low = std::min(low, means.back());
    high = std::max(high, means.back());
  }
  std::string line;
  for (const double mean : means) {
    if (!std::isfinite(mean)) {
      line += ' ';
      continue;
    }
    const double share = high > low ? (mean - low) / (high - low) : 0.0;
    const double level = std::round(share * static_cast<double>(kLevels.size() - 1));
    line += kLevels[static_cast<size_t>(level)];
  }
  return line;
}

}  // namespace longhaul::monitor
