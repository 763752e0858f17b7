#pragma once

#include <functional>
#include <vector>

#include "longhaul/layout/pipeline/plan.h"

namespace longhaul::plan {

/// How long the actions of one rank take.
struct RankTimes {
  double busy = 0.0;  ///< seconds in which the rank computes
  double end = 0.0;   ///< when its last action has ended
};

/// Plays the actions of a step through: an action begins when the rank has ended the
/// action before it and the message that it waits for has arrived. `seconds` are those of
/// an action of a rank; a message takes `message_seconds` and holds neither rank up.
/// Throws Error (Internal) for a plan that cannot end.
std::vector<RankTimes> play(
    const layout::PipelinePlan& plan,
    const std::function<double(int rank, const layout::PipelineAction&)>& seconds,
    double message_seconds);

}  // namespace longhaul::plan
