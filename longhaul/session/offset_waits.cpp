#include "longhaul/session/offset_waits.h"

#include <fmt/format.h>

#include <map>
#include <set>

namespace longhaul::session {
namespace {

/// Returns whether one product of a unit's experts has frozen weights and trained
/// weights.
bool is_partly_frozen(const UnitDescription& unit, int64_t ep,
                      const std::function<bool(const std::string&)>& frozen) {
  std::map<int64_t, bool> of_rank;  // by the place in an ep group
  for (const ParameterDescription& p : unit.parameters) {
    if (!p.expert) continue;
    // One product has the matrices of all experts that take the same input. A matrix that
    // is not `joint` begins the next product.
    if (!p.joint) of_rank.clear();
    const bool is_frozen = frozen(p.name);
    const int64_t rank = p.expert->index * ep / p.expert->of;
    if (of_rank.try_emplace(rank, is_frozen).first->second != is_frozen) return true;
  }
  return false;
}

}  // namespace

std::vector<int64_t> expert_sizes(const ModelDescription& model,
                                  const layout::ShardPlan& tensor) {
  std::set<int64_t> sizes;
  for (const ParameterDescription& p : model.parameters()) {
    if (!p.expert || p.expert->index > 0) continue;  // a layer's experts are alike
    for (int64_t rank = 0; rank < tensor.tp; ++rank) {
      const auto shard = layout::plan_parameter(tensor, {p.whole(), p.split}, rank);
      sizes.insert(shard.slice.extent.begin(), shard.slice.extent.end());
    }
  }
  return {sizes.begin(), sizes.end()};
}

std::string describe_partly_frozen(
    const ModelDescription& model, int64_t ep,
    const std::function<bool(const std::string&)>& frozen) {
  std::vector<int64_t> layers;
  for (const UnitDescription& unit : model.units) {
    if (is_partly_frozen(unit, ep, frozen)) layers.push_back(unit.layer);
  }
  if (layers.empty()) return {};
  const std::string where = layers.size() == 1
                                ? fmt::format("layer {}", layers.front())
                                : fmt::format("{} layers, of which layer {} is the first",
                                              layers.size(), layers.front());
  return fmt::format(
      "products of experts run one expert after another, and the host waits for the "
      "device in {}: optimizer.groups freezes some matrices of the experts and not "
      "others; freeze all experts of a layer, or none",
      where);
}

}  // namespace longhaul::session
