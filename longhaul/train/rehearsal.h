#pragma once

#include <cstdint>

#include "longhaul/train/history/history.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/save/run_checkpoints.h"
#include "longhaul/train/save/state_capture.h"
#include "longhaul/train/start/run_start.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Whether a start first does what a run does late.
enum class Rehearse {
  No,
  IfLarge,  ///< if the run has more than kRehearsedRanks ranks and has done no step
  Yes       ///< if the run has done no step
};
inline constexpr int kRehearsedRanks = 64;

/// What a rehearsal uses of a start that is ready for its first step.
struct RehearsalInputs {
  TrainingSession& session;
  const History& history;
  const RunStart& start;
  RunLog& run;
  const RunCheckpoints& checkpoints;
  StateCapture& capture;
  int64_t total_steps = 0;  ///< the run's last step (train::total_steps())
  int64_t last_step = 0;    ///< the step at which the start ends
};

/// Does at once what a run does late, where `asked` asks for it, so that whatever would
/// fail late fails in the first minutes. rehearsal.cpp has the list of the parts. Logs
/// the time of each part. Afterwards the state is bitwise what it was, and nothing of the
/// rehearsal is on disk. Removes what a rehearsal that was killed has left, whatever
/// `asked` says.
///
/// Throws an error of the area "rehearsal", which names what has failed, in the error's
/// own words and with its kind. Throws EndedEarly where a signal asks the run to end.
/// Collective.
void rehearse(Rehearse asked, const RehearsalInputs& inputs);

}  // namespace longhaul::train
