#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// Copies between the memories of a device and of the host. A copy comes after everything
/// that is in the caller's stream, and has ended when its function returns.
struct DeviceCopies {
  std::function<void(void* host, const ConstBuffer& device)> to_host;
  /// Returns a function that copies from the host into the device's buffer. It may be
  /// called when the buffer's tensor has gone out of the caller's scope.
  std::function<std::function<void(const void* host)>(const Buffer& device)> to_device;
};

/// Returns a group of the same ranks as `host` for memory of a device that has no
/// collectives of its own. `host` must outlive the group. An operation copies its buffers
/// to the host, exchanges them there over `host`, and copies results back when its Work
/// is waited for or ordered. Sums are those of `host`, bit for bit. Each operation waits
/// for the device.
std::unique_ptr<Communicator> through_host(Communicator& host, DeviceCopies copies);

}  // namespace longhaul::comm
