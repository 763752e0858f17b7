#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/monitor/report/report_runs.h"
#include "longhaul/run/events.h"

namespace longhaul::monitor {

/// The checkpoint of another run with which a run began, and where that run is among the
/// runs of a page.
struct Parent {
  run::BranchEvent branch;
  std::optional<size_t>
      run;  ///< index into the page's runs; absent: it is not among them
};

/// Returns the parent of each run; nothing for a run that began by itself.
std::vector<std::optional<Parent>> parents_of(const std::vector<ReportRun>& runs);

/// Returns a card that draws which of the runs began from which, and at which step; empty
/// if none of them began from another one. `styles` has the CSS classes of each run.
std::string tree_card(const std::vector<ReportRun>& runs,
                      const std::vector<std::string>& styles);

}  // namespace longhaul::monitor
