#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/checkpoint/write/background_saver.h"

namespace longhaul::faults {

struct TinyRun {
  fs::path run_dir;  ///< checkpoints go to run_dir/checkpoints
  std::vector<int64_t> steps;
  int ranks = 2;
  int64_t keep = 2;
  bool overlap = true;  ///< the next save begins while the earlier save is under way
};

/// Takes the run's lock and saves these steps as training does. `ended` is called on rank
/// 0 with the end of each save. Throws what BackgroundSaver and RunLock throw. Returns
/// the attempt.
int run_tiny(
    const TinyRun& run,
    const std::function<void(const checkpoint::SaveReport&, int attempt)>& ended);

}  // namespace longhaul::faults
