#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

// A plug-in of LibTorch whose device has hardly any operations.

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

struct OneDevice final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return {kType, 0}; }
  c10::Device getDevice() const override { return {kType, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kType, 0));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};

struct BareHooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

const bool kRegistered = [] {
  c10::register_privateuse1_backend("bare");
  at::RegisterPrivateUse1HooksInterface(new BareHooks);
  c10::impl::registerDeviceGuard(kType, new OneDevice);
  return true;
}();

at::Tensor& fill_nothing(at::Tensor& x, const c10::Scalar&) { return x; }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("fill_.Scalar", fill_nothing); }

}  // namespace
