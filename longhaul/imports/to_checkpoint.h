#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "longhaul/base/json.h"
#include "longhaul/imports/foreign_model.h"

namespace longhaul::imports {

struct ToCheckpointOptions {
  int64_t step = 0;
  std::string build;  ///< for the manifest
  Json state;         ///< state.json
  /// Called with bytes done and bytes in all, for a progress display. May be empty.
  std::function<void(uint64_t, uint64_t)> progress;
};

/// Writes OUT/step_N with weights (the masters where there are some, else the stored
/// weights, in fp32) and both moments. Streams: holds one window of tensors, never the
/// model. `out` must be absent or empty (InputError); on failure nothing is left. Returns
/// the bytes of the checkpoint. The model has optimizer state.
uint64_t write_foreign_checkpoint(const ForeignModel& model, const fs::path& out,
                                  const ToCheckpointOptions& options);

}  // namespace longhaul::imports
