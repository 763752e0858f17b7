#pragma once

#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/start/run_start.h"

namespace longhaul::train {

/// Returns the highest number of a start that the directory of checkpoints tells of.
/// Where run.dir knows of no run or has no metrics, or where a checkpoint is missing, the
/// mirror is asked as well, also for the identity of the run. The mirror is not asked
/// with checkpoint.resume = "never". Does nothing where there is no mirror. Throws where
/// the store does not answer and there is no checkpoint here either, or no history.
/// Collective.
MirrorPast look_at_mirror(const RunConfig& config, comm::Communicator& world);

/// Fetches what the mirror has of the run's log, events and metrics where run.dir has no
/// metrics. This start appends to these files, so that the next copy in the mirror has
/// the lines of all starts. Throws where they cannot be fetched. Must be called before a
/// RunLog is made. Collective.
void restore_history(const RunConfig& config, const MirrorPast& past,
                     const RunStart& start, comm::Communicator& world);

/// Brings a checkpoint of the mirror into the directory of checkpoints, where the
/// directory lacks what checkpoint.resume asks for. If the setting asks for the run's
/// newest checkpoint, fetches the newest whole one. Where that is damaged in the mirror,
/// the log says so, and the one before it is fetched. Where the mirror has none, does
/// nothing. If the setting asks for a step, fetches that step; throws where neither place
/// has it whole. Throws where the store does not answer: the run must not begin anew by
/// itself. Must be called before look_at_home(). Collective.
void restore_from_mirror(const RunConfig& config, comm::Communicator& world,
                         RunStart& start, RunLog& run);

}  // namespace longhaul::train
