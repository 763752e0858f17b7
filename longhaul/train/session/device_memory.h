#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace longhaul::train {

/// The most bytes of the device's memory that tensors have had at once in this process,
/// as its caching allocator counts; 0 where it has none that counts (a CPU's has not).
int64_t peak_device_bytes(c10::Device device);

/// What a step's record calls the peak of memory: the device's, and on a CPU, or where
/// nobody counts, that of this process.
int64_t peak_bytes(c10::Device device);

}  // namespace longhaul::train
