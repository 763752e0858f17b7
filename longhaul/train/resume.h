#pragma once

#include "longhaul/train/history.h"
#include "longhaul/train/run_log.h"
#include "longhaul/train/session.h"

namespace longhaul::train {

/// Fills weights and optimizer: from the checkpoint that [checkpoint] resume chooses,
/// else from [init] weights, else from the seed; and says which in the log. A checkpoint
/// of this run beats [init]. Returns how far the run has come. Collective.
History load_state(Session& session, RunLog& run);

}  // namespace longhaul::train
