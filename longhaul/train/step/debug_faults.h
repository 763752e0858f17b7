#pragma once

#include <cstdint>
#include <string_view>

#include "longhaul/config/run_config.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// What a fault of [debug] faults multiplies a rank's loss and gradients by.
struct BatchFault {
  double loss = 1.0;
  double gradient = 1.0;
};

/// Makes the faults that [debug] asks for. Those of a batch come with it whenever it is
/// trained on: at the given step, unless batches before it were left out since; that of
/// memory comes with the step.
class DebugFaults {
 public:
  DebugFaults(const RunConfig& config, int rank, int attempt);

  /// `cursor`: after the batch was handed out.
  BatchFault of_batch(const data::Cursor& cursor) const;
  /// After the step's update, weights shared: flips the lowest bit of one weight in
  /// memory.
  void in_memory(const Session& session, int64_t step) const;

 private:
  std::vector<DebugFault> faults_;  ///< of this start
  int rank_;
  int64_t global_size_;
};

/// Sleeps where [debug] delays say so of the phase.
void debug_delay(const RunConfig& config, int rank, std::string_view phase);

}  // namespace longhaul::train
