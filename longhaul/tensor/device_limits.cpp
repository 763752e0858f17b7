#include "longhaul/tensor/device_limits.h"

#include <dlfcn.h>

namespace longhaul::tensor {
namespace {

DeviceLimits stated_by_library() {
  DeviceLimits limits;
  using State = void (*)(DeviceLimits*);
  const auto state = reinterpret_cast<State>(::dlsym(RTLD_DEFAULT, kDeviceLimits));
  if (state != nullptr) state(&limits);
  return limits;
}

}  // namespace

const DeviceLimits& limits_of(c10::Device device) {
  static const DeviceLimits none;
  if (device.type() != c10::DeviceType::PrivateUse1) return none;
  static const DeviceLimits stated = stated_by_library();
  return stated;
}

}  // namespace longhaul::tensor
