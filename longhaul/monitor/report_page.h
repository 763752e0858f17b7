#pragma once

#include <string>

#include "longhaul/base/json.h"
#include "longhaul/monitor/run_view.h"

namespace longhaul::monitor {

/// Returns one HTML file with everything in it: no script, nothing from outside, dark or
/// light as the reader's system. `program` names who made it: "longhaul 0.1.0 (...)".
std::string report_page(RunFiles& run, const RunView& view, const std::string& program);

/// Returns the figures of the page for programs.
Json report_json(RunFiles& run, const RunView& view);

}  // namespace longhaul::monitor
