#include "longhaul/plan/device_memory.h"

#include <algorithm>

namespace longhaul::plan {

bool has_experts(const ModelDescription& model) {
  return std::ranges::any_of(
      model.units, [](const UnitDescription& unit) { return unit.forward.routed > 0; });
}

std::vector<DeviceMemory> device_memory(const RunConfig& config,
                                        const ModelDescription& model,
                                        const layout::LayoutDescription& layout,
                                        std::span<const layout::RankCosts> costs,
                                        const HardwareProfile& profile,
                                        double imbalance) {
  layout::Passes passes = layout::passes_of(config, model, layout, profile.device);
  passes.tokens.imbalance = std::min(imbalance, static_cast<double>(layout.ep));
  std::vector<DeviceMemory> memory;
  for (const layout::RankCosts& stage : costs) {
    const auto pp = static_cast<int>(memory.size());
    DeviceMemory& one = memory.emplace_back(DeviceMemory{stage});
    if (passes.tokens.imbalance > 1.0) {
      one.costs.activations = layout::activation_bytes(
          passes, model, layout, layout.training_plan(), {.pp = pp});
    }
    if (profile.device != "cpu") one.context = profile.node.context_bytes;
  }
  return memory;
}

const DeviceMemory& fullest(std::span<const DeviceMemory> stages) {
  return *std::ranges::max_element(stages, {}, &DeviceMemory::all);
}

}  // namespace longhaul::plan
