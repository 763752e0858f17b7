#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "longhaul/optim/run_schedule.h"

namespace longhaul::train {

/// What is known besides the speed when a step is done and the decay may have to begin.
struct EndQuestion {
  int64_t step = 0;            ///< steps done
  int64_t most = 0;            ///< the run's last step by run.steps or run.epochs
  int64_t world = 1;           ///< the number of ranks
  double seconds_left = 0.0;   ///< until the date, or until the sum is spent
  double seconds_after = 0.0;  ///< the part of them that is not for steps: saves and the
                               ///< last validation
};

/// Decides where the decay of kind wsd begins and the run ends, once that must be known;
/// returns nothing while the decay can still have its whole length after another step.
/// `step_seconds` are the times of this start's last steps, with what came between them.
/// A step that stood still counts as at most five median steps, a save and a validation.
///
/// k steps are taken to last k times their mean and a margin. The margin is three
/// standard deviations of what k such steps and the measured mean vary by, but at most a
/// tenth of k means. A decay for which less time is left has fewer steps, one at least.
/// The decision does not come before the end of the warm-up, and not from fewer than
/// twenty steps unless no more than twenty fit. It never comes once the decay by
/// run.steps has begun.
///
/// If the basis has the decision of another number of ranks, decides anew at once. Then
/// the run ends with the last step that fits, and the decay goes on from its rate. If no
/// step fits, the earlier decision stays.
std::optional<optim::Ending> decide_end(std::span<const double> step_seconds,
                                        const EndQuestion& question,
                                        const optim::ScheduleBasis& basis);

}  // namespace longhaul::train
