#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/families/layers/feed_forward.h"

namespace longhaul::families {

/// A mixture of experts, of which each token is sent to `top_k`:
///   p = softmax(router x), over all experts, in fp32
///   y = sum over the top_k experts e with the largest p of w_e * expert_e(x), plus
///       shared(x) if there is a shared expert,
/// with w = p, or with `normalised` p over the sum of the chosen p. Experts are gated
/// feed-forwards without biases and of equal sizes (Shazeer et al. 2017, arXiv
/// 1701.06538; Fedus et al. 2021, arXiv 2101.03961).
struct Experts {
  Linear router;  ///< out: the number of experts
  std::vector<FeedForward> experts;
  int64_t top_k = 1;
  bool normalised = true;
  std::optional<FeedForward> shared = {};
  /// Files may hold all experts together instead: FUSED.gate_up_proj [experts, 2 inner,
  /// width], with an expert's gate before its up, and FUSED.down_proj [experts, width,
  /// inner]. The name is empty if no files do.
  std::string fused = {};
  bool operator==(const Experts&) const = default;
};

/// Returns the name of the tensor of all gates and ups, one of PEFT's target_parameters.
/// Their low-rank part has one A for both, that of the gate.
inline std::string gate_up_of(const Experts& layer) {
  return layer.fused + ".gate_up_proj";
}
/// Returns the name of the tensor of all downs.
inline std::string down_of(const Experts& layer) { return layer.fused + ".down_proj"; }

/// Adds the mixture over x to the unit's description.
Feature add_layer(UnitMaker& unit, const Experts& layer, const Feature& x);

}  // namespace longhaul::families
