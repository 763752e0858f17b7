#pragma once

#include <string>

#include "longhaul/base/json.h"
#include "longhaul/monitor/run_view.h"

namespace longhaul::monitor {

/// One HTML file with everything in it: no script, nothing from outside, dark or light as
/// the reader's system. `program` names who made it: "longhaul 0.1.0 (...)".
std::string report_page(RunFiles& run, const RunView& view, const std::string& program);

/// The same figures for programs.
Json report_json(RunFiles& run, const RunView& view);

}  // namespace longhaul::monitor
