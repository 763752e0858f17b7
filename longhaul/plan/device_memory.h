#pragma once

#include <span>
#include <vector>

#include "longhaul/config/hardware_profile.h"
#include "longhaul/layout/rank_costs.h"

namespace longhaul::plan {

/// What a device holds of one rank of a stage, in bytes.
struct DeviceMemory {
  layout::RankCosts costs;
  double context = 0.0;  ///< what driver and libraries take
  double all() const { return static_cast<double>(layout::most_bytes(costs)) + context; }
};

/// Returns whether a model has experts, to which tokens are routed.
bool has_experts(const ModelDescription& model);

/// Returns what the first rank of each stage holds, which `costs` has. A CPU holds no
/// context beside it. With an `imbalance` above 1 the rank's experts get so many times
/// the rows that a rank of its ep group gets on average, in every layer. They get at most
/// all of the group's rows.
std::vector<DeviceMemory> device_memory(const RunConfig& config,
                                        const ModelDescription& model,
                                        const layout::LayoutDescription& layout,
                                        std::span<const layout::RankCosts> costs,
                                        const HardwareProfile& profile,
                                        double imbalance = 1.0);

/// Returns the stage that holds most, of at least one.
const DeviceMemory& fullest(std::span<const DeviceMemory> stages);

}  // namespace longhaul::plan
