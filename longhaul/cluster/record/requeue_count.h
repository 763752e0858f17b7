#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul::cluster {

/// Why a job goes back to the queue. Storage and the reasons after it will hardly go away
/// because the job starts again later, perhaps on other nodes.
enum class RequeueReason {
  Nodes,    ///< this job has too few nodes left
  Signal,   ///< the time limit is near, or the run was asked to stop; it has saved if it
            ///< could
  Host,     ///< the batch script's machine is lost
  Done,     ///< as Host, but the run is done: the next life of the job ends it well
  Storage,  ///< the run's file system refuses what a start needs
  Crash,    ///< the supervisor itself ended again and again
  Unknown,
};
const char* reason_name(RequeueReason reason);

/// Whether and when a job may go back to the queue.
struct RequeueDecision {
  bool allowed = true;
  double wait_seconds = 0.0;  ///< seconds before the job may start again
  std::string reason = {};    ///< what a person must do where it is not allowed
  RequeueReason why = RequeueReason::Unknown;
  bool event_written = false;  ///< by the supervisor that could make no start
};

/// Returns the reason in words for people: "too few nodes are left (nodes)".
std::string describe_reason(RequeueReason reason);
/// Returns the reason of this name, or nothing for an unknown name.
std::optional<RequeueReason> requeue_reason(const std::string& name);

/// Returns how many requeues of this job in a row have brought no newer checkpoint; 0 if
/// that is not known.
int requeues_in_vain(const fs::path& run_dir, const std::string& job,
                     int64_t newest_checkpoint);

/// Notes in the run's record (control/requeues.json) why a supervisor ends with 75, for
/// whoever asks for the requeue. If it cannot be noted, the reason stays unknown.
void note_requeue_reason(const fs::path& run_dir, const std::string& job,
                         RequeueReason reason);

/// Counts a requeue in the run's record, whoever asks for it: the supervisor, a
/// supervisor that stands in, an agent, the batch script. Without `told` the reason is
/// the supervisor's note. Requeues of one job in a row without a newer checkpoint wait
/// longer and longer, and after twenty of them none is allowed. For reasons that a later
/// start will hardly remove (storage, a crash, unknown) already the first one waits, and
/// five are allowed. If they cannot be counted, Slurm's own count stands for them.
/// Another job counts from the beginning, because a person has submitted it.
RequeueDecision count_requeue(const fs::path& run_dir, const std::string& job,
                              int64_t newest_checkpoint,
                              std::optional<RequeueReason> told = std::nullopt);

}  // namespace longhaul::cluster
