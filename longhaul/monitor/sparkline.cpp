#include "longhaul/monitor/sparkline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace longhaul::monitor {
namespace {

constexpr std::array<const char*, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

/// Returns the mean of the finite values; NaN if there is none.
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

std::vector<std::string> tall_sparkline(std::span<const double> values, size_t columns,
                                        size_t rows) {
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
  std::vector<std::string> lines(rows);
  const auto top = static_cast<double>(rows * kBars.size() - 1);
  for (const double mean : means) {
    const double share = high > low ? (mean - low) / (high - low) : 0.0;
    const size_t filled =
        std::isfinite(mean) ? static_cast<size_t>(std::round(share * top)) + 1 : 0;
    for (size_t row = 0; row < rows; ++row) {
      const size_t below = (rows - 1 - row) * kBars.size();
      const size_t here = std::min(filled - std::min(filled, below), kBars.size());
      lines[row] += here > 0 ? kBars[here - 1] : " ";
    }
  }
  return lines;
}

std::string sparkline(std::span<const double> values, size_t columns) {
  return tall_sparkline(values, columns, 1).front();
}

}  // namespace longhaul::monitor
