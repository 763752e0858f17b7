#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// Copies between the memories of a device and of the host. Both functions return when
/// the bytes have arrived. A copy comes after everything that is in the caller's stream.
struct DeviceCopies {
  std::function<void(void* host, const void* device, size_t bytes)> to_host;
  std::function<void(void* device, const void* host, size_t bytes)> to_device;
};

/// Returns a group of the same ranks as `host` for memory of a device that has no
/// collectives of its own. `host` must outlive the group. An operation copies its buffers
/// to the host, exchanges them there over `host`, and copies results back when its Work
/// is waited for or ordered. Sums are those of `host`, bit for bit. Each operation waits
/// for the device.
std::unique_ptr<Communicator> through_host(Communicator& host, DeviceCopies copies);

}  // namespace longhaul::comm
