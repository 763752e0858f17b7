#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/checkpoint/memory/keeper.h"
#include "longhaul/checkpoint/memory/tensors.h"
#include "longhaul/session/session.h"
#include "longhaul/train/history/history.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/save/state_capture.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Keeps each rank's state in its machine's memory and in a neighbour machine's memory,
/// every [resilience] peer_memory_every steps. All functions are Collective.
class PeerMemory {
 public:
  /// Makes the files in memory, where the setting asks for them, and logs it. Where this
  /// machine has too little memory, throws ConfigError. In a supervised restart
  /// (LONGHAUL_RESTART above 0), which must not end a run that could go on, a warning is
  /// logged instead, and nothing is kept in memory.
  PeerMemory(const TrainingSession& session, const History& history, RunStart& start,
             RunLog& run, StateCapture& capture);

  /// Keeps the state of the step that has just been done, if a copy is due.
  void keep(const TrainingSession& session, const History& history);
  /// Makes sure that no start finds the steps that were kept in memory, which do not
  /// belong to the run any more.
  void forget(const session::Session& session);
  /// Waits for copies under way at the end of a start. Nothing stays in memory where a
  /// checkpoint has `saved` the run's last step; else the next start may want the state
  /// of that step.
  void end(const session::Session& session, bool saved);

 private:
  void tell_times();

  RunLog& run_;
  StateCapture& capture_;  ///< which the saves use too
  int attempt_;
  int64_t every_;
  std::optional<checkpoint::MemoryKeeper> keeper_;
  int64_t kept_ = 0;
  double seconds_ = 0.0;
  double waited_ = 0.0;
  bool outgrown_ =
      false;  ///< whether the warning of a state.json without room was logged
};

/// Returns the directory of this run in this machine's memory; its name follows from rank
/// 0's run directory. Collective.
fs::path memory_dir_of(const session::Session& session);

/// Returns a state in memory that is as new as the newest of `checkpoints` (the best
/// first), if this start may use it. Logs what is missing or damaged. Collective.
std::optional<checkpoint::MemoryStep> newest_in_memory(
    const session::Session& session, const RunStart& start, RunLog& run,
    const std::vector<fs::path>& checkpoints);

/// Removes what a later start must not find, after this start has begun from the state
/// `used` in memory, or from elsewhere (null). Collective.
void settle_memory(const session::Session& session, const checkpoint::MemoryStep* used);

}  // namespace longhaul::train
