#include "apps/node_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::apps {

std::vector<std::string> NodeChoice::usable(const cluster::Attempt& attempt) {
  std::vector<std::string> usable = usable_nodes_();
  std::erase_if(usable, [&](const std::string& node) {
    return std::ranges::count(attempt.excluded, node) > 0;
  });
  if (config_.resilience.on_node_loss == NodeLossPolicy::Wait && !last_.empty()) {
    std::erase_if(usable, [&](const std::string& node) {
      return std::ranges::count(last_, node) == 0;
    });
  }
  return usable;
}

std::vector<std::string> NodeChoice::choose(const cluster::Attempt& attempt) {
  std::vector<std::string> usable = this->usable(attempt);
  const size_t wanted = nodes_for(usable.size());
  if (wanted == 0) {
    fail_temporary("nodes", "the run needs {} nodes and can use {} ({}); left out: {}",
                   nodes_, usable.size(), fmt::join(usable, ", "),
                   fmt::join(attempt.excluded, ", "));
  }
  std::ranges::stable_partition(usable, [&](const std::string& node) {
    return std::ranges::count(last_, node) > 0;
  });
  usable.resize(wanted);
  last_ = usable;
  return usable;
}

/// Returns on how many of `usable` nodes to train; 0 if there are too few.
size_t NodeChoice::nodes_for(size_t usable) const {
  const auto wanted = static_cast<size_t>(nodes_);
  if (usable >= wanted) return wanted;
  if (config_.resilience.on_node_loss != NodeLossPolicy::Shrink) return 0;
  for (size_t nodes = usable; nodes > 0; --nodes) {
    if (fits_(static_cast<int64_t>(nodes))) return nodes;
  }
  return 0;
}

}  // namespace longhaul::apps
