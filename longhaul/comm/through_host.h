#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// Copies between a device's memory and the host's. Both come back when the bytes are
/// there, after everything that the caller's stream had been given.
struct DeviceCopies {
  std::function<void(void* host, const void* device, size_t bytes)> to_host;
  std::function<void(void* device, const void* host, size_t bytes)> to_device;
};

/// A group of the same ranks as `host`, which outlives it, for memory of a device that
/// has no collectives of its own: buffers are copied to the host, exchanged there by
/// `host`, and copied back when their Work is waited for or ordered. Sums are those of
/// `host`, bit for bit. Each operation waits for the device.
std::unique_ptr<Communicator> through_host(Communicator& host, DeviceCopies copies);

}  // namespace longhaul::comm
