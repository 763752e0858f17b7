#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/session/session.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/start/run_start.h"

namespace longhaul::train {

/// Returns the checkpoints that a start may go on from, the best first; the same on all
/// ranks. None: the run begins anew. Tells of newer checkpoints that are damaged or
/// missing, and sets a checkpoint aside from which starts have failed in a row.
/// Collective.
std::vector<fs::path> resume_candidates(const session::Session& session,
                                        const RunStart& start, RunLog& run);

/// Returns the checkpoints of at most this step that a rollback may take, the best first;
/// the same on all ranks. Where all of these were deleted, returns the oldest that is
/// left. With none the run begins anew. Throws TemporaryError where the run had
/// checkpoints and all of them are gone: the next start decides what to do. Collective.
std::vector<fs::path> rollback_candidates(const session::Session& session,
                                          const RunStart& start, RunLog& run,
                                          int64_t step);

}  // namespace longhaul::train
