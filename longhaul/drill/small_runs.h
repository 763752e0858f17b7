#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/drill/drilled_fault.h"
#include "longhaul/drill/recovery.h"

namespace longhaul::drill {

struct SmallRunOptions {
  fs::path dir;  ///< directory of the runs, on the file system that is to be tried
  /// Returns the command line that supervises a small run of this configuration.
  std::function<std::vector<std::string>(const fs::path& config)> command;
  int ranks = 2;  ///< ranks of each run, which decide on the size of its batch
  int64_t steps = 60;
  uint64_t seed = 1;             ///< decides on the moments and ranks that are hit
  int hang_seconds = 5;          ///< resilience.hang_timeout_s of the runs
  double limit_seconds = 300.0;  ///< for each run
  std::function<void(const std::string& line)> progress;
};

/// What one drilled fault did to a small run. If the drill failed, `cause` says why.
struct DrillResult : Recovery {
  std::string fault;
  bool survived = false;     ///< the run ended by itself, with exit code 0
  bool same_losses = false;  ///< every step's loss and norm as in the undisturbed run
  int64_t at_step = 0;       ///< step at which the fault came
  bool passed() const { return survived && same_losses; }
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DrillResult, fault, survived, same_losses, at_step,
                                   steps_redone, seconds_to_new_step, cause)

/// Trains a small model undisturbed, then once with each fault at a random moment, each
/// run in a directory of its own under options.dir, and compares the losses. Throws
/// TemporaryError if the undisturbed run fails.
std::vector<DrillResult> drill_small_runs(const std::vector<DrillFault>& faults,
                                          const SmallRunOptions& options);

}  // namespace longhaul::drill
