#pragma once

// A device that a test makes up, with memory of its own, which is counted, and the CPU's
// kernels. It notes each time that a real device would have made the host wait. One unit
// of a test binary includes this file.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace longhaul::testing {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
const at::Device kDevice(kType, 0);

std::atomic<int64_t> device_bytes{0};
std::atomic<int64_t> pinned_bytes{0};
std::atomic<int64_t> copies_to_device{0};

/// The reasons why the host would have waited for the device, in order.
class Waits {
 public:
  void note(std::string why) {
    const std::lock_guard lock(mutex_);
    seen_.push_back(std::move(why));
  }
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(seen_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> seen_;
};
Waits waits;

/// This is above 0 inside of a kernel that the CPU computes in the device's place. Copies
/// in it count as no waits.
thread_local int inside = 0;

/// An allocator that counts the bytes that are alive. Blocks of pinned memory are powers
/// of two, as those of LibTorch's allocators are.
template <std::atomic<int64_t>& counter>
struct CountedMemory final : c10::Allocator {
  explicit CountedMemory(at::Device place) : device(place) {}
  struct Block {
    c10::DataPtr data;
    int64_t size;
  };
  c10::DataPtr allocate(size_t size) override {
    if (device.is_cpu()) size = std::bit_ceil(size);
    auto* block =
        new Block{c10::GetCPUAllocator()->allocate(size), static_cast<int64_t>(size)};
    counter += block->size;
    peak = std::max<int64_t>(peak, counter);
    note(block, true);
    return {block->data.get(), block, &release, device};
  }
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    counter -= block->size;
    note(block, false);
    if (block->size > 0) std::memset(block->data.get(), 0xA5, block->size);
    delete block;
  }
  /// Returns whether the address lies in memory that this class has given out.
  static bool owns(const void* address) {
    const std::lock_guard lock(mutex);
    auto after = blocks.upper_bound(static_cast<const std::byte*>(address));
    if (after == blocks.begin()) return false;
    const auto& [begin, size] = *--after;
    return static_cast<const std::byte*>(address) < begin + size;
  }
  static void note(const Block* block, bool lives) {
    if (block->data.get() == nullptr) return;
    const std::lock_guard lock(mutex);
    const auto* begin = static_cast<const std::byte*>(block->data.get());
    if (lives) {
      blocks[begin] = block->size;
    } else {
      blocks.erase(begin);
    }
  }
  static inline std::mutex mutex;
  static inline std::map<const std::byte*, int64_t> blocks;
  static inline std::atomic<int64_t> peak = 0;  ///< most bytes at a time
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t size) const override {
    std::memcpy(to, from, size);
  }
  at::Device device;
};

CountedMemory<device_bytes> device_memory(kDevice);
CountedMemory<pinned_bytes> pinned_memory(at::kCPU);

/// The work of streams beside the default stream, which does all work at once. Work of a
/// side stream is done at the last moment that order allows, when somebody waits for an
/// event behind it. So code that does not wait, or that frees memory too early, sees
/// wrong values.
class SideStreams {
 public:
  static inline thread_local int64_t current = 0;

  int64_t make() { return ++made_; }
  /// Queues the work if a side stream is current, and returns whether it did.
  bool put_off(std::function<void()> work) {
    if (current == 0) return false;
    const std::lock_guard lock(mutex_);
    work_[current].push_back(std::move(work));
    return true;
  }
  /// Returns the number of operations that the stream was given so far.
  size_t asked(int64_t stream) {
    const std::lock_guard lock(mutex_);
    return work_[stream].size();
  }
  void do_until(int64_t stream, size_t count) {
    const std::lock_guard lock(mutex_);
    for (size_t& next = done_[stream]; next < count; ++next) {
      std::exchange(work_[stream][next], nullptr)();
    }
  }

 private:
  std::mutex mutex_;
  std::atomic<int64_t> made_ = 0;
  std::map<int64_t, std::vector<std::function<void()>>> work_;
  std::map<int64_t, size_t> done_;
};
// This object is never deleted, since it may hold memory of copies that nobody has waited
// for.
SideStreams& side_streams = *new SideStreams;

/// An event: the first `count` operations of a stream.
struct Recorded {
  int64_t stream;
  size_t count;
};

struct Guard final : c10::impl::NoOpDeviceGuardImpl<kType> {
  at::Device exchangeDevice(at::Device) const override { return kDevice; }
  at::Device getDevice() const override { return kDevice; }
  static c10::Stream stream(int64_t id) {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, id);
  }
  c10::Stream getStream(at::Device) const noexcept override {
    return stream(SideStreams::current);
  }
  c10::Stream getDefaultStream(at::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(at::Device, bool) const override {
    return stream(side_streams.make());
  }
  c10::Stream exchangeStream(c10::Stream next) const noexcept override {
    return stream(std::exchange(SideStreams::current, next.id()));
  }
  void record(void** event, const c10::Stream& on, c10::DeviceIndex,
              c10::EventFlag) const override {
    destroyEvent(*event, 0);
    *event = new Recorded{on.id(), side_streams.asked(on.id())};
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Recorded*>(event);
  }
  void block(void* event, const c10::Stream& waiting) const override {
    if (waiting.id() == 0) synchronizeEvent(event);
  }
  void synchronizeEvent(void* event) const override {
    const auto* recorded = static_cast<const Recorded*>(event);
    if (recorded != nullptr) side_streams.do_until(recorded->stream, recorded->count);
  }
  bool queryEvent(void* event) const override {
    synchronizeEvent(event);
    return true;
  }
  void synchronizeStream(const c10::Stream& s) const override {
    side_streams.do_until(s.id(), side_streams.asked(s.id()));
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  // at::manual_seed() calls this function.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  bool isPinnedPtr(const void* data) const override {
    return CountedMemory<pinned_bytes>::owns(data);
  }
};

/// Returns a tensor of the CPU over the memory of `x`.
at::Tensor host_view(const at::Tensor& x) {
  const auto options = x.options().device(at::kCPU);
  return x.is_cpu() ? x : at::from_blob(x.data_ptr(), x.sizes(), x.strides(), options);
}

/// Notes a copy between host and device that the host waits for, or that uses pageable
/// memory of the host.
void look_at_copy(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (inside > 0 || from.is_cpu() == to.is_cpu() || from.numel() == 0) return;
  const at::Tensor& host = from.is_cpu() ? from : to;
  if (from.is_cpu()) ++copies_to_device;
  if (!non_blocking) waits.note("a blocking copy");
  if (!CountedMemory<pinned_bytes>::owns(host.const_data_ptr())) {
    waits.note("a copy of pageable memory");
  }
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  look_at_copy(from, to, non_blocking);
  const at::Tensor source = host_view(from), target = host_view(to);
  if (side_streams.put_off([=] { target.copy_(source); })) return to;
  target.copy_(source);
  return to;
}

const at::Tensor& made_as_large(const at::Tensor& x, c10::IntArrayRef size,
                                std::optional<at::MemoryFormat>) {
  // NOLINTBEGIN(bugprone-return-const-ref-from-parameter): the operator's signature
  if (x.sizes() == size) return x;
  const at::Tensor fresh = at::empty(size, x.options());
  x.unsafeGetTensorImpl()->set_storage_keep_dtype(fresh.storage());
  x.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return x;
  // NOLINTEND(bugprone-return-const-ref-from-parameter)
}

at::Tensor copy_result(const at::Tensor& from, const at::Tensor& to) {
  return copy_from(from, made_as_large(to, from.sizes(), std::nullopt), false);
}

at::Scalar read_scalar(const at::Tensor& x) {
  waits.note("a scalar is read");
  return host_view(x).item();
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

/// Operators whose result has a size, or is a value, that only the device knows.
const std::set<std::string> kReadBack = {
    "aten::nonzero",           "aten::masked_select", "aten::_unique2",
    "aten::unique_dim",        "aten::equal",         "aten::_local_scalar_dense",
    "aten::repeat_interleave", "aten::bincount"};

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.schema().name();
  if (inside == 0 && kReadBack.contains(name)) waits.note(name);
  ++inside;
  at::native::cpu_fallback(op, stack);
  --inside;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_result);
  m.impl("_local_scalar_dense", &read_scalar);
  m.impl("resize_", &made_as_large);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
}

void make_device() {
  static const bool made = [] {
    static Hooks hooks;
    at::RegisterPrivateUse1HooksInterface(&hooks);
    c10::register_privateuse1_backend("counted");
    c10::SetAllocator(kType, &device_memory);
    return true;
  }();
  ASSERT_TRUE(made);
}

}  // namespace
}  // namespace longhaul::testing
