#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "longhaul/checkpoint/write/background_saver.h"
#include "longhaul/train/start/training_state.h"

namespace longhaul::train {

/// Returns the bytes of the tensors that a save of this rank writes.
uint64_t saved_bytes(const ModelState& state);

/// Captures the state of this rank for saves. A state on a device is copied into pinned
/// host memory (pinned_blocks.h), which is kept for later captures: as many sets as are
/// in use at once. The copies run on a stream beside the device's current one, behind all
/// that is in the current stream, if the device has such streams. Nobody waits for them
/// but before_change() and Snapshot::ready. Not thread-safe.
class StateCapture {
 public:
  /// Returns this rank's share of masters and moments, with the owner of the copies and
  /// the wait for the copies. On a CPU there is no owner: the bytes are the live tensors'
  /// own, which must not change until the save has ended.
  checkpoint::Snapshot capture(const ModelState& state);
  /// Returns a capture that all who call this share until the state changes.
  checkpoint::Snapshot shared(const ModelState& state);
  /// Must be called before the state changes: puts the copies of the last capture before
  /// everything that the caller puts into the device's current stream from now on.
  void before_change();

 private:
  struct Buffers;
  std::shared_ptr<Buffers> free_buffers();
  std::vector<std::shared_ptr<Buffers>> sets_;
  const Buffers* under_way_ = nullptr;  ///< one of sets_, until before_change()
  std::optional<checkpoint::Snapshot> shared_;
  std::optional<c10::Stream> beside_;  ///< made by the first capture of a device
};

}  // namespace longhaul::train
