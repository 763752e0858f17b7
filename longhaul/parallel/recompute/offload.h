#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <vector>

namespace longhaul::parallel {

/// Activations that wait in pinned host memory until their backward. Copies run on a
/// stream of their own beside the device's current one and are ordered with it by events:
/// that of a block's input beside the block itself, and its way back beside the backward
/// of the block behind it, since the newest kept is fetched ahead. Of one device; not
/// thread-safe.
class Offload {
 public:
  /// What is kept of one tensor.
  class Kept {
    friend class Offload;
    at::Tensor host;
    at::Tensor there;  ///< being copied out, or fetched
    std::optional<c10::Event> out, back;
  };
  using KeptPtr = std::shared_ptr<Kept>;

  /// Begins to copy x out; its memory stays.
  KeptPtr keep(const at::Tensor& x);
  /// What has been put on the current stream by now may go on beside the copy out; what
  /// follows may write x's memory.
  void left(const KeptPtr& kept);
  /// The tensor again, for work on the current stream; and begins to fetch the one that
  /// was kept before it.
  at::Tensor take(const KeptPtr& kept);

 private:
  c10::Stream side(at::Device device);
  void begin_fetch(Kept& kept);

  std::optional<c10::Stream> side_;
  std::vector<std::weak_ptr<Kept>> order_;
};

}  // namespace longhaul::parallel
