#pragma once

#include <cstdint>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul::cluster {

struct RequeueDecision {
  bool allowed = true;
  double wait_seconds = 0.0;  ///< before the job may start again
  std::string reason;         ///< where it is not allowed: what a person must do
};

/// Counts a requeue in the run's record (control/requeues.json), whoever asks for it: the
/// supervisor, one that stands in, an agent, the batch script. Requeues of one job in a
/// row between which no newer checkpoint was made wait longer and longer; after twenty
/// none is allowed, whatever asks. Another job counts from the beginning: a person has
/// submitted it. A record that cannot be read or written counts nothing.
RequeueDecision count_requeue(const fs::path& run_dir, const std::string& job,
                              int64_t newest_checkpoint);

}  // namespace longhaul::cluster
