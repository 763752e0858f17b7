#pragma once

#include <string>
#include <vector>

#include "longhaul/cluster/health/health.h"

namespace longhaul::cluster {

/// A node and why it is not to be used.
struct SickNode {
  std::string node;
  std::string cause;
  /// A path holds something else on this node than on the others (node_paths.h).
  bool seen_otherwise = false;
};

/// What health checks of several nodes say of single nodes, and of what all nodes share.
struct Findings {
  std::vector<SickNode> sick;
  std::vector<std::string> shared;  ///< each problem once, with the nodes that saw it
};

/// Tells failures of a node from shared problems. Shared are: too little room on a file
/// system, a directory that fails on several nodes, and the same text of the same check
/// on several nodes and on more than half of all. The result depends on the reports
/// alone.
Findings judge_health(const std::vector<HealthReport>& reports);

}  // namespace longhaul::cluster
