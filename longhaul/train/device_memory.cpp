#include "longhaul/train/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "longhaul/base/process.h"

namespace longhaul::train {

int64_t peak_device_bytes(c10::Device device) {
  if (device.is_cpu()) return 0;
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator == nullptr || !allocator->initialized()) return 0;
  const c10::DeviceIndex index = device.has_index() ? device.index() : 0;
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return allocator->getDeviceStats(index).allocated_bytes.at(kAll).peak;
}

int64_t peak_bytes(c10::Device device) {
  const int64_t there = peak_device_bytes(device);
  return there > 0 ? there : peak_resident_bytes();
}

}  // namespace longhaul::train
