#pragma once

#include <cstdint>
#include <string_view>

#include "longhaul/config/run_config.h"
#include "longhaul/data/order/cursor.h"
#include "longhaul/session/session.h"

namespace longhaul::train {

/// The factors by which a fault of [debug] faults multiplies a rank's loss and gradients.
struct BatchFault {
  double loss = 1.0;
  double gradient = 1.0;
};

/// Makes the faults that [debug] asks for. A fault of a batch comes with the batch
/// whenever it is trained on: at the given step, unless earlier batches were left out. A
/// fault of memory comes at the given step.
class DebugFaults {
 public:
  DebugFaults(const RunConfig& config, int rank, int attempt);

  /// Returns the factors for a batch; `cursor` is the position behind the
  /// batch.
  BatchFault of_batch(const data::Cursor& cursor) const;
  /// Flips the lowest bit of one weight in memory where the step has such a fault. Must
  /// be called after the update, when weights are shared.
  void in_memory(const session::Session& session, int64_t step) const;

 private:
  std::vector<DebugFault> faults_;  ///< faults of this start
  int rank_;
  int64_t global_size_;
};

/// Warns of ranks and steps in [debug] and [profile] that this run does not have, so that
/// nothing would happen there. Throws ConfigError for a tensor that the model does not
/// have, and for a pattern that matches nothing.
void check_debug(const session::Session& session, system::Logger& log);

/// Sleeps where [debug] delays ask for it in this phase.
void debug_delay(const RunConfig& config, int rank, std::string_view phase);

}  // namespace longhaul::train
