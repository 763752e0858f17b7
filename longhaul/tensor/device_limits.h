#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <limits>

namespace longhaul::tensor {

/// What a kind of device cannot do. A step keeps to these limits; CPU and CUDA have none.
struct DeviceLimits {
  /// The device computes with 64-bit numbers (fp64, int64). Otherwise tensors of the
  /// device are at most 32 bits wide.
  bool wide_types = true;
  /// The device writes into parts of its tensors, and finds memory by an address within
  /// it. Otherwise each tensor that is written or sent begins its own memory and is
  /// contiguous.
  bool writes_views = true;
  /// Any shape costs the same. Otherwise each new shape of an operation is compiled, so
  /// that all steps must have the same shapes.
  bool any_shapes = true;
  /// The most bytes of one tensor.
  int64_t most_bytes = std::numeric_limits<int64_t>::max();

  bool operator==(const DeviceLimits&) const = default;
};

/// The C function by which a plug-in states its limits:
/// `extern "C" void longhaul_device_limits(longhaul::tensor::DeviceLimits* limits)`.
inline constexpr const char* kDeviceLimits = "longhaul_device_limits";

/// Returns the limits of the device: none of CPU and CUDA, and for another device those
/// that its library states. The library must have been loaded with RTLD_GLOBAL before.
/// Thread-safe.
const DeviceLimits& limits_of(c10::Device device);

}  // namespace longhaul::tensor
