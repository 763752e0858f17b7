#include "longhaul/session/device_fit.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::session {
namespace {

std::string text_of(int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

}  // namespace

std::string check_fit(const layout::RankCosts& costs, size_t free_bytes,
                      size_t total_bytes) {
  const layout::StateBytes& s = costs.state;
  const int64_t states = s.weights + s.gradients + s.masters + s.moments;
  const int64_t whole = costs.whole.weights + costs.whole.gradients;
  const layout::ActivationBytes& a = costs.activations;
  const int64_t all = layout::most_bytes(costs);
  const auto free = static_cast<int64_t>(free_bytes);
  if (all <= free) return {};
  const std::string needs = fmt::format(
      "weights {}, gradients {}, master weights {}, moments {}, tensors that ZeRO "
      "gathers {}, and about {} for activations and {} for work space (of which logits "
      "take {}), {} in all. The device has {} free of {}",
      text_of(s.weights), text_of(s.gradients), text_of(s.masters), text_of(s.moments),
      text_of(whole), text_of(a.in_flight.total()), text_of(a.work), text_of(a.logits),
      text_of(all), text_of(free), text_of(static_cast<int64_t>(total_bytes)));
  if (states > free) {
    throw ConfigError(
        "memory", fmt::format("a rank needs {}; use more ranks, a higher parallel.zero, "
                              "tp or pp, or precision.master = \"bf16_sr\" (longhaul "
                              "config --ranks N shows the memory that each choice takes)",
                              needs));
  }
  return "memory may not suffice: " + needs;
}

}  // namespace longhaul::session
