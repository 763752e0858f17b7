#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/layout/rank_costs.h"

namespace longhaul::apps {

/// What is printed of one pipeline stage: what its ranks hold and send. The costs are
/// those of the rank that holds most, which is the first of each group.
struct StageLine {
  int stage = 0;
  int64_t first_layer = 0;
  int64_t end_layer = 0;
  layout::RankCosts costs;  ///< what one rank holds and sends, over all its stages
  int64_t nccl_bytes = 0;   ///< reckoned for NCCL's buffers on a GPU
  int64_t all_bytes() const { return layout::most_bytes(costs) + nccl_bytes; }
};

struct AskedLayout {
  layout::LayoutDescription layout;
  std::vector<layout::RankCosts> costs;  ///< of the first rank of each stage
  std::vector<StageLine> stages;
  int64_t checkpoint_bytes = 0;
  int64_t kept_checkpoints = 0;  ///< checkpoint.keep; 0: all
};

/// Computes the layout of these settings and its costs on a device, which is named as in
/// run.device or in a profile. `frozen` tells by name which parameters are not trained.
/// Throws ConfigError like describe_layout.
AskedLayout ask_layout(const RunConfig& config, const ModelDescription& model,
                       int64_t ranks, const layout::Placement& placement,
                       const std::function<bool(const std::string&)>& frozen,
                       std::string_view device);

/// Prints the layout as comments of a TOML file, in aligned tables.
void print_layout(const AskedLayout& asked);
OrderedJson layout_json(const AskedLayout& asked);

}  // namespace longhaul::apps
