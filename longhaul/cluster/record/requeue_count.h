#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul::cluster {

struct RequeueDecision {
  bool allowed = true;
  double wait_seconds = 0.0;  ///< before the job may start again
  std::string reason;         ///< where it is not allowed: what a person must do
};

/// Why a job goes back to the queue.
enum class RequeueReason {
  Nodes,    ///< too few are left in this job
  Signal,   ///< the time limit is near, or it was asked to stop; saved where it could be
  Host,     ///< the batch script's machine is lost
  Done,     ///< likewise, and the run is done: its next life ends the job well
  Storage,  ///< the run's file system refuses what a start needs
  Crash,    ///< the supervisor itself ended, again and again
  Unknown,
};
const char* reason_name(RequeueReason reason);
/// Nothing for other words.
std::optional<RequeueReason> requeue_reason(const std::string& name);

/// Requeues of this job since which no newer checkpoint was made; 0 where that is not
/// known.
int requeues_in_vain(const fs::path& run_dir, const std::string& job,
                     int64_t newest_checkpoint);

/// For a supervisor that ends with 75: kept in the run's record (control/requeues.json)
/// for whoever asks for the requeue. Where it cannot be kept the reason is not known.
void note_requeue_reason(const fs::path& run_dir, const std::string& job,
                         RequeueReason reason);

/// Counts a requeue in the run's record, whoever asks for it: the supervisor, one that
/// stands in, an agent, the batch script. Without `told` the reason is the supervisor's
/// note. Requeues of one job in a row between which no newer checkpoint was made wait
/// longer and longer; after twenty none is allowed, whatever asks. Of those that the
/// queue hardly mends (storage, a crash, unknown) the first waits too, and five are
/// allowed; where they cannot be counted, for Slurm's own count. Another job counts from
/// the beginning: a person has submitted it.
RequeueDecision count_requeue(const fs::path& run_dir, const std::string& job,
                              int64_t newest_checkpoint,
                              std::optional<RequeueReason> told = std::nullopt);

}  // namespace longhaul::cluster
