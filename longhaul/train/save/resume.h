#pragma once

#include "longhaul/train/history/history.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// Fills weights and optimizer: from the checkpoint that [checkpoint] resume chooses,
/// else from [init] weights, else from the seed; and says which in the log. A checkpoint
/// of this run beats [init]. Returns how far the run has come. Collective.
History load_state(Session& session, RunStart& start, RunLog& run);

/// Goes back from `now`, whose newest step was bad: fills weights and optimizer from the
/// newest checkpoint from before the last `steps` steps, or anew as the run began, and
/// returns how far that has come. Its data leaves out the batches of those steps; what
/// comes after depends on nothing but them, wherever the checkpoint lies. Newer
/// checkpoints are set aside. Saves must have ended. Collective.
History roll_back(Session& session, RunStart& start, RunLog& run, const History& now,
                  int64_t steps);

}  // namespace longhaul::train
