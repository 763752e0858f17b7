#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/drill/drilled_fault.h"

namespace longhaul::drill {

struct SmallRunOptions {
  fs::path dir;  ///< what is tried is the file system that holds it
  /// The words that supervise a small run of this configuration, program first.
  std::function<std::vector<std::string>(const fs::path& config)> command;
  int ranks = 2;  ///< of each run, for the size of its batch
  int64_t steps = 60;
  uint64_t seed = 1;             ///< of the moments and ranks
  int hang_seconds = 5;          ///< resilience.hang_timeout_s of the runs
  double limit_seconds = 300.0;  ///< for each run
  std::function<void(const std::string& line)> progress;
};

struct DrillResult {
  std::string fault;
  bool survived = false;     ///< it ended by itself, with exit code 0
  bool same_losses = false;  ///< every step's loss and norm as in the undisturbed run
  int64_t at_step = 0;       ///< of the fault
  int64_t steps_redone = 0;
  double seconds_to_new_step = 0.0;
  std::string cause;  ///< what the supervisor said of it, or why it failed here
  bool passed() const { return survived && same_losses; }
  Json to_json() const;
};

/// Trains a small model undisturbed, then once with each fault at a random moment, in
/// directories of their own under options.dir, and compares. TemporaryError where the
/// undisturbed run fails.
std::vector<DrillResult> drill_small_runs(const std::vector<DrillFault>& faults,
                                          const SmallRunOptions& options);

}  // namespace longhaul::drill
