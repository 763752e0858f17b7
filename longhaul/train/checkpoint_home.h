#pragma once

#include "longhaul/train/run_log.h"
#include "longhaul/train/run_start.h"
#include "longhaul/train/session.h"

namespace longhaul::train {

/// What a start finds where the run keeps its checkpoints.
enum class Home {
  Sound,  ///< what the run knows to be there, or nothing that could be lost
  Gone,   ///< the run had checkpoints, and no rank sees one
};

/// Compares the directory of checkpoints with what the run knows of itself, before
/// anything is loaded: nobody begins anew because a mount is away. With checkpoint.resume
/// = "never" what is there is set aside, and the run begins anew under another identity.
/// TemporaryError where ranks see different directories, InputError where the checkpoints
/// are another run's. Collective.
Home look_at_home(const Session& session, RunStart& start, RunLog& run);

/// InputError: the run's checkpoints are gone, and what to do. Collective.
[[noreturn]] void refuse_gone(const Session& session, const RunStart& start);

/// Whether checkpoint.resume is a path outside of the run's own checkpoints: the run
/// begins there, and goes on by its own checkpoints as soon as it has some.
bool begins_elsewhere(const RunConfig& config);

/// Whether checkpoint.resume names one of the run's own checkpoints, by its step or its
/// path, to which the run goes back.
bool goes_back(const RunConfig& config);

/// The run's newest checkpoint is the newest whole one that is there. Rank 0 looks.
void note_newest(const Session& session, RunStart& start);

}  // namespace longhaul::train
