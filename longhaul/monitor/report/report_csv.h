#pragma once

#include <string>

#include "longhaul/monitor/run_files.h"

namespace longhaul::monitor {

/// Returns the steps that count as CSV: a column `step`, a column `timestamp` in UTC, and
/// one for each number of metrics.jsonl by its name there. A number within an object has
/// the name OBJECT/NAME (source_tokens/wiki), a validation validation/NAME/loss and a
/// task task/NAME/METRIC. A number that a step lacks, or that is not finite, is an empty
/// cell. trackio.import_csv and spreadsheets read it.
std::string report_csv(const RunFiles& run);

}  // namespace longhaul::monitor
