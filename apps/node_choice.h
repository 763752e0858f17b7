#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/cluster/supervisor/supervisor.h"
#include "longhaul/config/load.h"

namespace longhaul::apps {

/// Chooses the nodes of each start of a run over several machines.
class NodeChoice {
 public:
  /// Chooses among the nodes that `usable_nodes` returns at each start, of which `nodes`
  /// nodes train and the others are spares. `fits` tells whether the run trains on so
  /// many nodes, which are fewer.
  NodeChoice(const RunConfig& config,
             std::function<std::vector<std::string>()> usable_nodes, int nodes,
             std::function<bool(int64_t nodes)> fits)
      : config_(config),
        usable_nodes_(std::move(usable_nodes)),
        nodes_(nodes),
        fits_(std::move(fits)) {}

  /// Returns the nodes of the next start: those that trained last, and spares in place of
  /// those that cannot be used. There may be fewer nodes if resilience.on_node_loss is
  /// "shrink". Throws TemporaryError if too few are left.
  std::vector<std::string> choose(const cluster::Attempt& attempt);
  /// Returns whether choose() would find fewer nodes than wanted.
  bool lacks(const cluster::Attempt& attempt) {
    return usable(attempt).size() < static_cast<size_t>(nodes_);
  }

 private:
  std::vector<std::string> usable(const cluster::Attempt& attempt);
  size_t nodes_for(size_t usable) const;

  const RunConfig& config_;
  std::function<std::vector<std::string>()> usable_nodes_;
  int nodes_;
  std::function<bool(int64_t nodes)> fits_;
  std::vector<std::string> last_;
};

}  // namespace longhaul::apps
