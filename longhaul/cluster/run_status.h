#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/cluster/observed.h"

namespace longhaul::cluster {

/// What status.json says; see docs/failures.md.
struct RunStatus {
  std::string state;  ///< starting training saving restarting waiting draining done ...
  double since = 0.0;
  std::string job;
  int64_t restarts = 0;
  int64_t max_restarts = 0;
  std::string cause;  ///< the last fault, one line
  std::vector<std::string> spares;
  std::vector<std::string> excluded;
  std::vector<std::string> lost;

  Json to_json(const std::vector<NodeReport>& reports) const;
};

/// Replaces the file in one step, without waiting for the disk: it is of now only.
void write_status(const fs::path& path, const Json& status);

/// Nodes that are not to be used again: a file that outlives the job.
struct ExcludedNode {
  std::string node;
  double since = 0.0;
  std::string cause;
};
std::vector<ExcludedNode> read_excluded(const fs::path& path);
void write_excluded(const fs::path& path, const std::vector<ExcludedNode>& nodes);

}  // namespace longhaul::cluster
