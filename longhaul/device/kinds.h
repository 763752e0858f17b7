#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "longhaul/comm/device_api.h"

namespace longhaul::device {

/// What a kind of devices has beside LibTorch's interface and our operators. CUDA's comes
/// from a shared library (cuda_library.h).
class Kind {
 public:
  virtual ~Kind() = default;
  /// Which piece of hardware it is, the same for all processes of the machine; empty
  /// where that is not known.
  virtual std::string identity(at::DeviceIndex index) const = 0;
  /// Model and architecture: for the numerics fingerprint.
  virtual std::string name(at::DeviceIndex index) const = 0;
  /// ConfigError where the program's kernels cannot run on it.
  virtual void check(at::DeviceIndex index) const = 0;
  /// The collectives for its memory, null where it has none. ConfigError where they
  /// cannot be loaded.
  virtual std::shared_ptr<comm::DeviceApi> collectives() const = 0;
};

/// Of this device's kind; lives as long as the process.
const Kind& kind_of(at::Device device);

}  // namespace longhaul::device
