#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "longhaul/base/json.h"
#include "longhaul/imports/foreign_model.h"

namespace longhaul::imports {

struct ToCheckpointOptions {
  int64_t step = 0;
  std::string build;  ///< the build that the manifest names
  Json state;         ///< content of state.json
  /// Called with the bytes written and all bytes, for a progress display. May be empty.
  std::function<void(uint64_t, uint64_t)> progress;
};

/// Writes OUT/step_N with fp32 weights (the masters if there are some, else the stored
/// weights) and both moments. Holds one window of tensors at a time, never the whole
/// model. Throws InputError unless `out` is absent or empty; on failure nothing is left.
/// Returns the bytes of the checkpoint. The model must have optimizer state.
uint64_t write_foreign_checkpoint(const ForeignModel& model, const fs::path& out,
                                  const ToCheckpointOptions& options);

}  // namespace longhaul::imports
