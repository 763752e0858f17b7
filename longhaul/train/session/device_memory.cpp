#include "longhaul/train/session/device_memory.h"

#include "longhaul/base/process.h"
#include "longhaul/device/device.h"

namespace longhaul::train {

int64_t peak_device_bytes(c10::Device device) { return device::peak_bytes(device); }

int64_t peak_bytes(c10::Device device) {
  const int64_t there = peak_device_bytes(device);
  return there > 0 ? there : peak_resident_bytes();
}

}  // namespace longhaul::train
