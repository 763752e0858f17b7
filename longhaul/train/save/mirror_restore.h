#pragma once

#include "longhaul/config/run_config.h"
#include "longhaul/session/session.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/start/run_start.h"

namespace longhaul::train {

/// Returns the highest number of a start that the directory of checkpoints tells of. The
/// mirror is asked as well where run.dir knows of no run or has no metrics, or where a
/// checkpoint is missing; then it also says whose the run is. It is not asked with
/// checkpoint.resume = "never". Does nothing where there is no mirror. Throws where the
/// store does not answer and there is no checkpoint here either, or no history.
/// Collective.
MirrorPast look_at_mirror(const RunConfig& config, comm::Communicator& world);

/// Fetches what the mirror has of the run's log, events and metrics where run.dir has no
/// metrics: this start's are added to them, and the next copy holds all of them. Throws
/// where they cannot be fetched. Must be called before a RunLog is made. Collective.
void restore_history(const RunConfig& config, const MirrorPast& past,
                     const RunStart& start, comm::Communicator& world);

/// Brings a checkpoint of the mirror into the directory of checkpoints, which lacks what
/// checkpoint.resume asks for. For the run's newest that is the newest whole one, where
/// the directory has none. One that is damaged in the mirror is told, and the one before
/// it taken. Where the mirror has none either, nothing is done. For a step it is that
/// step; throws where neither place has it whole. Throws where the store does not answer:
/// the run must not begin anew by itself. Must be called before look_at_home().
/// Collective.
void restore_from_mirror(const session::Session& session, RunStart& start, RunLog& run);

}  // namespace longhaul::train
