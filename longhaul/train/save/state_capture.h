#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "longhaul/train/session/training_state.h"

namespace longhaul::train {

/// This rank's share of masters and moments for a save.
struct CapturedState {
  std::vector<checkpoint::StateTensor> tensors;
  /// Keeps the copies. Null on a CPU: the bytes are the live tensors, which must not
  /// change until the save has ended.
  std::shared_ptr<const std::vector<at::Tensor>> owner;
  /// Returns when the copies hold the state; any one thread. Empty: they do.
  std::function<void()> ready;
};

/// Captures states that lie on a device into pinned host memory, which is kept: as many
/// sets as are in use at once. The copies go on the device's current stream, before what
/// follows may change the state, and the caller does not wait for them. Not thread-safe.
class StateCapture {
 public:
  CapturedState capture(const ModelState& state);

 private:
  struct Buffers;
  std::shared_ptr<Buffers> free_buffers();
  std::vector<std::shared_ptr<Buffers>> sets_;
};

}  // namespace longhaul::train
