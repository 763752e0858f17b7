#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "longhaul/comm/device_api.h"

namespace longhaul::device {

/// What a kind of devices (CPU, CUDA, a plug-in's) has beside LibTorch's interface and
/// the operators. CUDA's Kind comes from a shared library (cuda_library.h).
class Kind {
 public:
  virtual ~Kind() = default;
  /// Returns a name of the hardware that is the same in all processes of the machine;
  /// empty if there is none.
  virtual std::string identity(at::DeviceIndex /*index*/) const { return {}; }
  /// Returns the device's address on the PCI bus, "0000:1b:00.0"; empty if there is none.
  virtual std::string pci_address(at::DeviceIndex /*index*/) const { return {}; }
  /// Returns model and architecture, for the numerics fingerprint.
  virtual std::string name(at::DeviceIndex index) const = 0;
  /// Throws ConfigError if the program cannot run on the device, which must be current
  /// for the thread.
  virtual void check(at::DeviceIndex /*index*/) const {}
  /// Returns the collectives that work on the device's memory; null if the device has
  /// none. Throws ConfigError if they cannot be loaded.
  virtual std::shared_ptr<comm::DeviceApi> collectives() const { return nullptr; }
};

/// Returns the kind of a device, which lives as long as the process.
const Kind& kind_of(at::Device device);

}  // namespace longhaul::device
