#include "longhaul/device/run_ahead.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "longhaul/device/device.h"

namespace longhaul::device {

RunAhead::RunAhead(at::Device device, std::function<void()> look)
    : device_(device), look_(std::move(look)) {
  begun_.reserve(kUnits);
}

void RunAhead::begin_unit() {
  if (begun_.size() < kUnits) {
    begun_.push_back(mark(device_));
    return;
  }
  c10::Event& begun = begun_[oldest_];
  wait(begun, look_);
  begun.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  oldest_ = (oldest_ + 1) % kUnits;
}

}  // namespace longhaul::device
