#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <vector>

namespace longhaul::parallel {

/// Keeps activations in pinned host memory until their backward. Copies run on a stream
/// of their own beside the device's current stream; events order the two streams. A
/// block's input is copied out while the block runs, and is copied back during the
/// backward of the block behind it, because the tensor that was kept last is fetched
/// ahead. Serves one device; not thread-safe.
class Offload {
 public:
  /// A kept tensor.
  class Kept {
    friend class Offload;
    at::Tensor host;
    at::Tensor there;  ///< the tensor on the device, while it is copied out or after its
                       ///< fetch has begun
    std::optional<c10::Event> out, back;
  };
  using KeptPtr = std::shared_ptr<Kept>;

  /// Begins to copy x out. The memory of x stays until left().
  KeptPtr keep(const at::Tensor& x);
  /// Frees the memory of the kept tensor. Work that was put on the current stream so far
  /// may run beside the copy; later work waits for the copy, since it may use the memory.
  void left(const KeptPtr& kept);
  /// Returns the tensor for work on the current stream, and begins to fetch the tensor
  /// that was kept before it.
  at::Tensor take(const KeptPtr& kept);

 private:
  c10::Stream side(at::Device device);
  void begin_fetch(Kept& kept);

  std::optional<c10::Stream> side_;
  std::vector<std::weak_ptr<Kept>> order_;
};

}  // namespace longhaul::parallel
