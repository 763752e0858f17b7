#pragma once

#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/monitor/against.h"
#include "longhaul/monitor/run_view.h"

namespace longhaul::monitor {

/// One of several runs on a page.
struct ReportRun {
  /// The last names of the directory's path, as many as tell this run from the others.
  std::string name;
  std::unique_ptr<RunFiles> files;
  RunView view;
};

/// Opens runs that are to be compared on one page. Throws InputError if two are the same
/// directory, if one has recorded no step, and if there are too many.
std::vector<ReportRun> open_runs(const std::vector<std::string>& dirs, double now);

/// Returns one HTML file with the curves of all runs over each other, and a table that
/// compares each run with the first. See report_frame for `program`.
std::string runs_page(const std::vector<ReportRun>& runs, const AgainstOptions& options,
                      const std::string& program);

/// Returns the numbers of each run as JSON, in the order of `runs`.
Json runs_json(std::vector<ReportRun>& runs, const AgainstOptions& options);

}  // namespace longhaul::monitor
