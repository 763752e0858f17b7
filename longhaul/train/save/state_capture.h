#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "longhaul/checkpoint/write/background_saver.h"
#include "longhaul/train/start/training_state.h"

namespace longhaul::train {

/// Returns the bytes of the tensors that a save of this rank writes.
uint64_t saved_bytes(const ModelState& state);

/// Captures the state of this rank for saves. A state on a device is copied into pinned
/// host memory, which is kept for later captures: as many sets as are in use at once. The
/// copies are ordered in the device's current stream, before anything that follows may
/// change the state, and the caller does not wait for the copies. Not thread-safe.
class StateCapture {
 public:
  /// Returns this rank's share of masters and moments, with the owner of the copies and
  /// the wait for the copies. On a CPU there is no owner: the bytes are the live tensors'
  /// own, which must not change until the save has ended.
  checkpoint::Snapshot capture(const ModelState& state);

 private:
  struct Buffers;
  std::shared_ptr<Buffers> free_buffers();
  std::vector<std::shared_ptr<Buffers>> sets_;
};

}  // namespace longhaul::train
