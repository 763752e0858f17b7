#pragma once

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/checkpoint/state_tensor.h"

namespace longhaul::checkpoint {

/// Host memory to which a rank's state is copied, so that training may go on while the
/// copy is written. The memory is made once, as large as the state, and used again by
/// every save.
class Staging {
 public:
  Staging() = default;
  ~Staging();

  /// Makes room. A thread of its own touches the pages, so that the first copy is as fast
  /// as later ones. Throws TemporaryError when there is no such memory.
  void reserve(uint64_t bytes);
  /// Copies the tensors' bytes with this many threads. The result stays here until the
  /// next copy.
  std::vector<StateTensor> copy(const std::vector<StateTensor>& tensors, int threads);

 private:
  void await_toucher();
  Mapping memory_;
  std::thread toucher_;
};

/// Returns the bytes that copy() needs for these tensors.
uint64_t staging_bytes(const std::vector<StateTensor>& tensors);

}  // namespace longhaul::checkpoint
