#pragma once

#include "longhaul/config/run_config.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/session/run_start.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// Returns what the mirror says of the run, where run.dir knows of no run: its directory
/// was lost with its machine, or the run is new. Says nothing where there is no mirror,
/// or checkpoint.resume = "never". Throws where the store does not answer and there is no
/// checkpoint here either. Collective.
MirrorPast look_at_mirror(const RunConfig& config, comm::Communicator& world);

/// Brings the newest whole checkpoint of the mirror into the directory of checkpoints,
/// where that has none and checkpoint.resume asks for the run's own. One that is damaged
/// in the mirror is told, and the one before it taken. Returns with nothing done where
/// the mirror has none either. Throws where the store does not answer: the run must not
/// begin anew by itself. Must be called before look_at_home(). Collective.
void restore_from_mirror(const Session& session, RunStart& start, RunLog& run);

}  // namespace longhaul::train
