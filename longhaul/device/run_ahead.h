#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace longhaul::device {

/// Bounds how far the host runs ahead of its device. A host that launches more than a
/// device's queue takes (1,024 kernels of a stream with CUDA) blocks in the driver, where
/// it cannot see that a peer is lost. So when a unit of the model begins, the host waits,
/// watching, until the device has come to the unit that began kUnits units before. A
/// device that is not held up has come there long before, and one question costs about a
/// microsecond. The units between are the work that the device has while the host waits.
class RunAhead {
 public:
  /// The units that lie between host and device at most. Their launches fit the queue: a
  /// layer's backward without fused operations, with its forward once more, has about
  /// 200.
  static constexpr size_t kUnits = 3;

  /// `look` is called now and then while the host waits, and throws to end the wait.
  RunAhead(at::Device device, std::function<void()> look);

  /// Is called before the forward or the backward of a unit is launched into the device's
  /// current stream.
  void begin_unit();

 private:
  at::Device device_;
  std::function<void()> look_;
  std::vector<c10::Event> begun_;  ///< the begins of the last units, in a ring
  size_t oldest_ = 0;              ///< of a full ring
};

}  // namespace longhaul::device
