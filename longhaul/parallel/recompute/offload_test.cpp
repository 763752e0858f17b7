// offload_activations on a device that this test makes up: memory of its own, which is
// counted, and the CPU's kernels. A CPU itself has no other memory to move anything to.
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <atomic>
#include <cstring>

#include "longhaul/parallel/recompute/recompute.h"

namespace longhaul::parallel {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
const at::Device kDevice(kType, 0);

std::atomic<int64_t> device_bytes{0};
std::atomic<int64_t> pinned_bytes{0};

/// Memory of a kind, counted while it lives.
template <std::atomic<int64_t>& counter>
struct CountedMemory final : c10::Allocator {
  explicit CountedMemory(at::Device place) : device(place) {}
  struct Block {
    c10::DataPtr data;
    int64_t size;
  };
  c10::DataPtr allocate(size_t size) override {
    auto* block =
        new Block{c10::GetCPUAllocator()->allocate(size), static_cast<int64_t>(size)};
    counter += block->size;
    return {block->data.get(), block, &release, device};
  }
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    counter -= block->size;
    delete block;
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t size) const override {
    std::memcpy(to, from, size);
  }
  at::Device device;
};

CountedMemory<device_bytes> device_memory(kDevice);
CountedMemory<pinned_bytes> pinned_memory(at::kCPU);

/// One device with one stream.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<kType> {
  at::Device exchangeDevice(at::Device) const override { return kDevice; }
  at::Device getDevice() const override { return kDevice; }
  c10::Stream getStream(at::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream exchangeStream(c10::Stream) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  void record(void**, const c10::Stream&, c10::DeviceIndex,
              c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
};

/// The same memory as a tensor of the CPU.
at::Tensor host_view(const at::Tensor& x) {
  const auto options = x.options().device(at::kCPU);
  return x.is_cpu() ? x : at::from_blob(x.data_ptr(), x.sizes(), x.strides(), options);
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool /*unused*/) {
  host_view(to).copy_(host_view(from));
  return to;
}

at::Tensor copy_result(const at::Tensor& from, const at::Tensor& to) {
  return copy_from(from, to, false);
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device>,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(size, &device_memory, keys, type.value_or(at::kFloat),
                                   format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(size, stride, &device_memory, keys,
                                           type.value_or(at::kFloat));
}

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_result);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
}

void make_device() {
  static const bool made = [] {
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    c10::register_privateuse1_backend("counted");
    c10::SetAllocator(kType, &device_memory);
    return true;
  }();
  ASSERT_TRUE(made);
}

constexpr int kBlocks = 5;
constexpr int64_t kBytes = 24 * 16 * 4;  // of an activation

struct Outcome {
  at::Tensor y, gradient;
  int64_t device = 0;  ///< bytes that the forward pass left there
  int64_t pinned = 0;
};

Outcome run_blocks(const at::Tensor& values, bool offload) {
  const int64_t device_before = device_bytes, pinned_before = pinned_bytes;
  const nn::BlockFunction block = [](const nn::Tensors& x) {
    return nn::Tensors{at::tanh(x[0]) * x[0]};
  };
  at::Tensor in = values.to(kDevice).requires_grad_(true);
  at::Tensor y = in;
  for (int i = 0; i < kBlocks; ++i) y = recompute(block, {y}, offload)[0];
  Outcome outcome;
  outcome.device = device_bytes - device_before;
  outcome.pinned = pinned_bytes - pinned_before;
  torch::autograd::backward({y}, {at::ones_like(y)});
  outcome.y = y.detach().cpu();
  outcome.gradient = in.grad().cpu();
  return outcome;
}

TEST(Offload, InputsThatBlocksKeepLeaveTheDeviceAndComeBackTheSame) {
  make_device();
  const at::Tensor x = at::linspace(-2, 2, 24 * 16).view({24, 16});
  const Outcome stays = run_blocks(x, false);
  const Outcome leaves = run_blocks(x, true);
  EXPECT_EQ(stays.device, (1 + kBlocks) * kBytes);  // the input, and what blocks gave
  EXPECT_EQ(stays.pinned, 0);
  EXPECT_EQ(leaves.device, 2 * kBytes);  // the input, and what the last block gave
  EXPECT_EQ(leaves.pinned, kBlocks * kBytes);
  EXPECT_TRUE(at::equal(leaves.y, stays.y));
  EXPECT_TRUE(at::equal(leaves.gradient, stays.gradient));
  EXPECT_GT(stays.gradient.abs().sum().item<float>(), 0.0F);
  EXPECT_EQ(pinned_bytes, 0);  // nothing is kept behind the backward pass
}

}  // namespace
}  // namespace longhaul::parallel
