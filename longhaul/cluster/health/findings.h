#pragma once

#include <string>
#include <vector>

#include "longhaul/cluster/health/health.h"

namespace longhaul::cluster {

/// A node and why it is not to be used.
struct SickNode {
  std::string node;
  std::string cause;
};

/// What health checks of several nodes say of the nodes, and what they say of what all of
/// them use.
struct Findings {
  std::vector<SickNode> sick;
  std::vector<std::string> shared;  ///< each once, with the nodes that saw it
};

/// Tells what is a node's own from what is shared: too little room on a file system, a
/// directory that fails on several nodes, the same words of the same check on several
/// nodes and on more than half of those that were asked. Pure.
Findings judge_health(const std::vector<HealthReport>& reports);

}  // namespace longhaul::cluster
