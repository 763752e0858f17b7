#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace longhaul::monitor {

/// Draws the course of values as one line of blocks, "█▇▅▄▃▃▂▁": the lowest block is the
/// smallest value that is drawn, the highest the largest. If there are more values than
/// columns each column is the mean of its share. A column without a finite value is a
/// space.
std::string sparkline(std::span<const double> values, size_t columns);

/// Draws the course of values over several rows of blocks, the highest row first, so that
/// there are more levels than in one row.
std::vector<std::string> tall_sparkline(std::span<const double> values, size_t columns,
                                        size_t rows);

}  // namespace longhaul::monitor
