#pragma once

namespace longhaul::comm {

/// Marks a group whose buffers may be memory of the host as well as of a device, and
/// which needs no other group beside it for tensors of the device (device::group_for).
class AnyMemory {
 public:
  virtual ~AnyMemory() = default;
};

}  // namespace longhaul::comm
