#pragma once

#include <string>
#include <vector>

#include "longhaul/monitor/run_view.h"

namespace longhaul::monitor {

struct ScreenSize {
  size_t width = 100;
  size_t height = 40;  ///< 0: as many lines as it takes
};

/// Draws one screen of a run: at most `height` lines of at most `width` columns. With
/// `colour` they hold our colour sequences; they never hold another control character.
std::vector<std::string> draw_screen(const RunView& view,
                                     const std::vector<Event>& events,
                                     const ScreenSize& size, bool colour);

/// Returns the run in one line for a log, which begins like "training step 1,200 of
/// 30,000 (4.0%)".
std::string status_line(const RunView& view);

}  // namespace longhaul::monitor
