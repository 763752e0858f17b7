#include "longhaul/session/device_fit.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::session {

std::string check_fit(const layout::RankCosts& costs, int64_t nccl_bytes,
                      size_t free_bytes, size_t total_bytes) {
  const layout::StateBytes& s = costs.state;
  const int64_t states = s.weights + s.gradients + s.masters + s.moments;
  const int64_t whole = costs.whole.weights + costs.whole.gradients;
  const layout::ActivationBytes& a = costs.activations;
  const int64_t all = layout::most_bytes(costs) + nccl_bytes;
  const auto free = static_cast<int64_t>(free_bytes);
  if (all <= free) return {};
  const std::string needs = fmt::format(
      "weights {}, gradients {}, master weights {}, moments {}, tensors that ZeRO "
      "gathers {}, and about {} for activations and {} for work space (of which logits "
      "take {}){}, {} in all. The device has {} free of {}",
      human_bytes(s.weights), human_bytes(s.gradients), human_bytes(s.masters),
      human_bytes(s.moments), human_bytes(whole),
      human_bytes(a.in_flight.total() + a.tokens), human_bytes(a.work),
      human_bytes(a.logits),
      nccl_bytes > 0 ? fmt::format(" and {} for NCCL's buffers (reckoned, not measured)",
                                   human_bytes(nccl_bytes))
                     : "",
      human_bytes(all), human_bytes(free), human_bytes(total_bytes));
  if (states + nccl_bytes > free) {
    fail_config(
        "memory",
        "a rank needs {}; use more ranks, a higher parallel.zero, "
        "tp or pp, or precision.master = \"bf16_sr\" (longhaul "
        "config --ranks N shows the memory that each choice takes){}",
        needs,
        nccl_bytes > 0 ? "; a lower NCCL_BUFFSIZE makes NCCL's buffers smaller" : "");
  }
  return "memory may not suffice: " + needs;
}

}  // namespace longhaul::session
