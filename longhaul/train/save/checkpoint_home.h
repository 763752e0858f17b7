#pragma once

#include "longhaul/session/session.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/start/run_start.h"

namespace longhaul::train {

/// What a start finds in the directory where the run keeps its checkpoints.
enum class Home {
  Sound,  ///< what the run's record says, or nothing that could be lost
  Gone,   ///< the run had checkpoints, and no rank sees one
};

/// Compares the directory of checkpoints with what the run has recorded of them
/// (run/run_past.h), before anything is loaded, so that no run begins anew because a
/// mount is away. With checkpoint.resume = "never" the checkpoints that are there are set
/// aside, and the run begins anew under another identity. Throws TemporaryError where
/// ranks see different directories, and InputError where the checkpoints are another
/// run's. Collective.
Home look_at_home(const session::Session& session, RunStart& start, RunLog& run);

/// Throws InputError which says that the run's checkpoints are gone, and what to do.
/// Collective.
[[noreturn]] void refuse_gone(const session::Session& session, const RunStart& start);

/// Returns whether checkpoint.resume is a path outside of the run's own checkpoints, or
/// another run's checkpoint among them. Such a run begins from that path, and goes on
/// from its own checkpoints as soon as it has some. Asks this rank's file system.
bool begins_elsewhere(const RunConfig& config);

/// When the checkpoints that are newer than the one a run goes back to are set aside.
enum class SetAside {
  Always,  ///< the run was rolled back
  /// only where checkpoint.resume names one of the run's own checkpoints, by its step or
  /// its path; rank 0 decides
  IfAsked,
};

/// Gives the checkpoints that are newer than `step` other names: after going back to
/// `step` they do not belong to the run any more, and no later start must find them.
/// Collective.
void set_newer_aside(const session::Session& session, RunStart& start, RunLog& run,
                     int64_t step, SetAside when);

/// Throws InputError where run.dir has steps and nothing says whether checkpoints of them
/// were committed: such a run does not begin anew by itself. Collective.
void refuse_unknown_past(const session::Session& session, const RunStart& start);
/// Warns, where nothing says which checkpoint was the newest, that the run goes on from
/// `step`. Must be called before note_loaded(). Collective.
void tell_unknown_past(const session::Session& session, const RunStart& start,
                       RunLog& run, int64_t step);

/// Notes in the run's record that this start has loaded or made its state, and that the
/// newest whole checkpoint on disk is the run's newest. Only rank 0 looks and writes.
/// Where rank 0 cannot write, a warning says so, and the run goes on.
void note_loaded(const session::Session& session, RunStart& start, RunLog& run);

}  // namespace longhaul::train
