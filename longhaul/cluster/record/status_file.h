#pragma once

#include <string>
#include <vector>

#include "longhaul/cluster/record/exclusions.h"
#include "longhaul/cluster/watch/observed.h"
#include "longhaul/run/run_status.h"

namespace longhaul::cluster {

/// Puts in what changes from second to second: nodes, ranks, the time, this process.
/// Nodes without ranks are spares where others have some.
void take_reports(RunStatus& status, const NodeReports& reports,
                  const std::vector<ExcludedNode>& excluded);

/// Replaces the file in one step, without waiting for the disk: it is of now only.
void write_status(const fs::path& path, const RunStatus& status);

}  // namespace longhaul::cluster
