#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "longhaul/comm/device_api.h"

namespace longhaul::device {

// What the kinds of devices have of their own: CUDA, and what plug-ins bring.

/// Which piece of hardware it is, the same for all processes of the machine; empty where
/// that is not known.
std::string identity(at::Device device);

/// The collectives for its memory, null where it has none. ConfigError where
/// they cannot be loaded.
std::shared_ptr<comm::DeviceApi> collectives(at::Device device);

}  // namespace longhaul::device
