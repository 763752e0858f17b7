#pragma once

namespace longhaul::comm {

/// Marks a group whose buffers may be memory of the host as well as of a device, and
/// which needs no other group beside it for tensors of the device (device::group_for).
class AnyMemory {
 public:
  virtual ~AnyMemory() = default;
};

/// Marks a group whose other ranks are played by this process, so that a device's
/// collectives cannot meet them.
class Played {
 public:
  virtual ~Played() = default;
};

}  // namespace longhaul::comm
