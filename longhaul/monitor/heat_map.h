#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace longhaul::monitor {

/// The loads of the experts of a layer over the steps of a run.
struct HeatMap {
  std::string title;
  size_t rows = 0;            ///< experts
  std::vector<double> steps;  ///< first step of each column
  double last = 0.0;          ///< step at which the last column ends
  /// Loads as multiples of an even share, by row and then by column; NaN if nothing is
  /// known.
  std::vector<double> values;
};

/// Draws a map under its title, as HTML and SVG: valid XML, complete without the script.
/// The colour is one of a few levels. Attributes have the values for the page's script.
std::string heat_panel(const HeatMap& map);

/// Returns the levels' names beside their colours, as HTML.
std::string heat_legend();

}  // namespace longhaul::monitor
