#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/checkpoint/memory/keeper.h"
#include "longhaul/checkpoint/memory/tensors.h"
#include "longhaul/train/history/history.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/save/state_capture.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// [resilience] peer_memory_every: every so many steps each rank's state is kept in its
/// machine's memory and in a neighbour's. All functions are Collective.
class PeerMemory {
 public:
  /// Makes the files, where it is on, and says so. Where this machine has not the memory:
  /// ConfigError, but in a supervised restart (LONGHAUL_RESTART above 0), which must not
  /// end a run that could go on, a warning, and it is off.
  PeerMemory(const Session& session, const History& history, const RunStart& start,
             RunLog& run);

  /// Keeps the step that has just been done, if it is due.
  void keep(const Session& session, const History& history);
  /// What was kept is of a past that has not happened: no start finds it.
  void forget(const Session& session);
  /// The orderly end of a start: nothing stays in memory, but what a supervisor's next
  /// start may want of a run that was `stopped` (LONGHAUL_MEMORY_DIR is set: the
  /// supervisor removes it).
  void end(const Session& session, bool stopped);

 private:
  void tell_times();

  RunLog& run_;
  int attempt_;
  int64_t every_;
  std::optional<checkpoint::MemoryKeeper> keeper_;
  StateCapture capture_;
  int64_t kept_ = 0;
  double seconds_ = 0.0;
  double waited_ = 0.0;
  bool outgrown_ = false;  ///< it was said
};

/// The directory of this run's parts on this machine; on all ranks by rank 0's idea of
/// the run directory. Collective.
fs::path memory_dir_of(const Session& session);

/// A state in memory that is as new as the newest of `checkpoints` (the best first), if
/// this start may have it. What is missing or damaged is logged. Collective.
std::optional<checkpoint::MemoryStep> newest_in_memory(
    const Session& session, const RunStart& start, RunLog& run,
    const std::vector<fs::path>& checkpoints);

/// After a start from this state in memory, or from elsewhere (null): what a later start
/// must not find is removed. Collective.
void settle_memory(const Session& session, const checkpoint::MemoryStep* used);

}  // namespace longhaul::train
