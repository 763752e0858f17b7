#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/layout/traffic.h"

namespace longhaul::layout {

/// Bytes of units that ZeRO 2 and 3 hold whole for a while.
struct WholeUnits {
  int64_t weights = 0;  ///< buffers of gathered weights
  int64_t gradients = 0;
};

/// Memory and traffic of one rank.
struct RankCosts {
  int64_t parameters = 0;
  StateBytes state;
  WholeUnits whole;
  ActivationBytes activations;
  Traffic traffic;  ///< traffic of one step
};

/// Estimates the most bytes that a rank holds at once.
int64_t most_bytes(const RankCosts& costs);

/// The costs of every rank of a layout: a pure function of the layout, the settings and
/// the model. Ranks that differ only in dp and cp have equal costs, so the costs are
/// computed once for each stage and tp index, however many ranks there are.
class LayoutCosts {
 public:
  /// `frozen` says by name which parameters are frozen. An empty `device` stands for
  /// run.device of the settings. Throws an internal Error if a rank has no part of a
  /// split parameter, which the rules of layout/rules.h exclude.
  LayoutCosts(const RunConfig& config, const ModelDescription& model,
              const LayoutDescription& layout,
              const std::function<bool(const std::string&)>& frozen = {},
              std::string_view device = {});

  const RankCosts& of(int rank) const;

 private:
  MeshShape shape_;
  std::vector<RankCosts> costs_;  ///< by pp index, then by tp index
};

/// Returns the costs of the first rank of each pipeline stage, which holds most of all
/// ranks of its stage. The arguments are those of LayoutCosts, which counts more ranks.
std::vector<RankCosts> stage_costs(
    const RunConfig& config, const ModelDescription& model,
    const LayoutDescription& layout,
    const std::function<bool(const std::string&)>& frozen = {},
    std::string_view device = {});

}  // namespace longhaul::layout
