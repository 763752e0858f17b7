#include "longhaul/plan/device_memory.h"

#include <algorithm>

namespace longhaul::plan {

std::vector<DeviceMemory> device_memory(const RunConfig& config,
                                        const ModelDescription& model,
                                        const layout::LayoutDescription& layout,
                                        std::span<const layout::RankCosts> costs,
                                        const HardwareProfile& profile) {
  const int64_t tokens =
      layout::passes_of(config, model, layout, profile.device).tokens.inside;
  std::vector<DeviceMemory> memory;
  for (const layout::RankCosts& stage : costs) {
    DeviceMemory& one = memory.emplace_back(DeviceMemory{stage});
    if (profile.device == "cpu") continue;
    one.tokens = stage.activations.forwards * tokens * kTokenBytes;
    one.context = profile.node.context_bytes;
  }
  return memory;
}

const DeviceMemory& fullest(std::span<const DeviceMemory> stages) {
  return *std::ranges::max_element(stages, {}, &DeviceMemory::all);
}

}  // namespace longhaul::plan
