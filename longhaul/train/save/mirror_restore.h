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

/// Brings a checkpoint of the mirror into the directory of checkpoints, which lacks what
/// checkpoint.resume asks for. For the run's newest that is the newest whole one, where
/// the directory has none. One that is damaged in the mirror is told, and the one before
/// it taken. Where the mirror has none either, nothing is done. For a step it is that
/// step; throws where neither place has it whole. Throws where the store does not answer:
/// the run must not begin anew by itself. Must be called before look_at_home().
/// Collective.
void restore_from_mirror(const Session& session, RunStart& start, RunLog& run);

}  // namespace longhaul::train
