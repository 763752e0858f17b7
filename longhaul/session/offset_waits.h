#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/families/description/description.h"
#include "longhaul/layout/shard_plan.h"

// The products of experts take a plain form for some models and settings, and then the
// host waits for the device (ops::describe_offset_waits). These functions find the cause.

namespace longhaul::session {

/// Returns the rows and columns of experts' matrices on the ranks of a tp group,
/// ascending, each once; empty for a model without experts.
std::vector<int64_t> expert_sizes(const ModelDescription& model,
                                  const layout::ShardPlan& tensor);

/// Returns the text of a warning where some matrices of a layer's experts are frozen and
/// others are not, and both are factors of one product on some rank; else an empty text.
/// `ep` ranks have all experts together.
std::string describe_partly_frozen(const ModelDescription& model, int64_t ep,
                                   const std::function<bool(const std::string&)>& frozen);

}  // namespace longhaul::session
