#pragma once

#include <vector>

#include "longhaul/cluster/record/exclusions.h"
#include "longhaul/cluster/watch/observed.h"
#include "longhaul/run/run_status.h"

namespace longhaul::cluster {

/// Fills in what changes from second to second: nodes, ranks, the time, this process. A
/// node without ranks is a spare if other nodes have ranks.
void take_reports(run::RunStatus& status, const NodeReports& reports,
                  const std::vector<ExcludedNode>& excluded);

/// Replaces the file in one step, without waiting for the disk: a power cut may lose it.
void write_status(const fs::path& path, const run::RunStatus& status);

}  // namespace longhaul::cluster
