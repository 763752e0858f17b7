#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/layout/traffic.h"

namespace longhaul {

/// Units that ZeRO 2 and 3 hold whole for a while, in bytes.
struct WholeUnits {
  int64_t weights = 0;  ///< buffers of those that are gathered
  int64_t gradients = 0;
};

/// What one rank holds and sends.
struct RankCosts {
  int64_t parameters = 0;
  StateBytes state;
  WholeUnits whole;
  ActivationBytes activations;
  Traffic traffic;  ///< of one step
};

/// About how many bytes a rank holds at most at once.
int64_t most_bytes(const RankCosts& costs);

/// The same for every rank of a layout: a pure function of it, the settings and the
/// model. Ranks that differ in dp and cp alone hold and send the same, so a hundred
/// thousand cost no more than one of each stage and part.
class LayoutCosts {
 public:
  /// `frozen`: by name. ConfigError as LayoutDescription::parameters.
  LayoutCosts(const RunConfig& config, const ModelDescription& model,
              const LayoutDescription& layout,
              const std::function<bool(const std::string&)>& frozen = {});

  const RankCosts& of(int rank) const;

 private:
  MeshShape shape_;
  std::vector<RankCosts> costs_;  ///< by pp, then tp
};

}  // namespace longhaul
