#pragma once

#include <string>

#include "longhaul/base/json.h"
#include "longhaul/monitor/run_view.h"

namespace longhaul::monitor {

/// Returns one HTML file with everything about a run in it. See report_frame for
/// `program`.
std::string report_page(RunFiles& run, const RunView& view, const std::string& program);

/// Returns the numbers of the page as JSON, for programs.
Json report_json(RunFiles& run, const RunView& view);

}  // namespace longhaul::monitor
