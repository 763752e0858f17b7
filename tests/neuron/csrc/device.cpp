#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "standin.h"

// Memory, devices, one stream and its events, which LibTorch needs of a device.

namespace neuron_standin {
namespace {

using c10::DeviceIndex;

c10::Device torch_device(int device) { return {kType, static_cast<DeviceIndex>(device)}; }

void add_block(const void* at, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  state().blocks[at] = bytes;
  state().used += bytes;
  state().peak = std::max(state().peak, state().used);
}

void remove_block(const void* at) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().blocks.find(at);
  if (found == state().blocks.end()) return;
  state().used -= found->second;
  state().blocks.erase(found);
}

void free_block(void* at) {
  remove_block(at);
  std::free(at);
}

void check_bytes(size_t bytes) {
  start_runtime();
  const size_t most =
      static_cast<size_t>(number("NEURON_STANDIN_MOST_BYTES", (int64_t{1} << 32) - 1));
  TORCH_CHECK(bytes <= most, "neuron stand-in: nrt_tensor_allocate: ", bytes,
              " bytes are more than one tensor may have (", most, ")");
  const std::lock_guard lock(state().mutex);
  TORCH_CHECK(state().used + bytes <= core_bytes(),
              "neuron stand-in: out of memory: ", bytes, " bytes are wanted, and ",
              state().used, " of ", core_bytes(), " are used");
}

/// A plain allocator: at::accelerator::getMemoryInfo cannot ask it.
struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const int device = current_device();
    if (bytes == 0) return {nullptr, nullptr, &free_nothing, torch_device(device)};
    check_bytes(bytes);
    void* at = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    TORCH_CHECK(at != nullptr, "neuron stand-in: the host has no memory");
    // Numbers of memory that nothing has written are no numbers.
    if (strict()) std::memset(at, 0xff, bytes);
    add_block(at, bytes);
    return {at, at, &free_block, torch_device(device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  static void free_nothing(void*) {}
};

Memory& memory() {
  static auto* const made = new Memory;
  return *made;
}

std::atomic<c10::StreamId> last_stream = 0;
thread_local c10::StreamId stream_of_thread = 0;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kType;
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const int before = current_device();
    setDevice(device);
    return torch_device(before);
  }
  c10::Device getDevice() const override { return torch_device(current_device()); }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) set_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index() && device.index() < deviceCount()) set_device(device.index());
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, with_index(device), stream_of_thread);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, with_index(device), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    const bool many = number("NEURON_RT_ENABLE_HOST_CC", 0) != 0;
    return c10::Stream(c10::Stream::UNSAFE, with_index(device), many ? ++last_stream : 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    stream_of_thread = stream.id();
    return before;
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<int*>(event);
  }
  void record(void** event, const c10::Stream&, const DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) *event = new int(0);
  }
  double elapsedTime(void*, void*, const DeviceIndex) const override { return 0; }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  DeviceIndex deviceCount() const noexcept override {
    try {
      return static_cast<DeviceIndex>(device_count());
    } catch (const std::exception&) {
      return 0;
    }
  }

 private:
  static c10::Device with_index(c10::Device device) {
    return device.has_index() ? device : torch_device(current_device());
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override {
    const std::lock_guard lock(state().mutex);
    return state().initialized;
  }
  void init() const override { start_runtime(); }
  DeviceIndex deviceCount() const override { return Guard().deviceCount(); }
  void setCurrentDevice(DeviceIndex device) const override { set_device(device); }
  DeviceIndex getCurrentDevice() const override {
    return static_cast<DeviceIndex>(current_device());
  }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const int before = current_device();
    set_device(device);
    return static_cast<DeviceIndex>(before);
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  bool isPinnedPtr(const void*) const override { return true; }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return c10::GetAllocator(c10::DeviceType::CPU);
  }
  const at::Generator& getDefaultGenerator(DeviceIndex) const override {
    static const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
    return generator;
  }
  at::Generator getNewGenerator(DeviceIndex) const override {
    return at::make_generator<at::CPUGeneratorImpl>();
  }
  c10::Device getDeviceFromPtr(void*) const override {
    return torch_device(current_device());
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::DataPtr data = memory().allocate(bytes);
    const size_t kept = std::min(bytes, storage.nbytes());
    if (kept > 0) std::memcpy(data.get(), storage.data(), kept);
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
  }
};

at::Tensor over(c10::Storage storage, const at::Tensor& like, c10::DispatchKey key) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                    like.storage_offset());
  return made;
}

void free_adopted(void* held) {
  auto* storage = static_cast<c10::Storage*>(held);
  remove_block(storage->data());
  delete storage;
}

}  // namespace

void register_device() {
  c10::SetAllocator(kType, &memory());
  if (!at::isPrivateUse1HooksRegistered()) {
    at::RegisterPrivateUse1HooksInterface(new Hooks);
  }
}

at::Tensor cpu_alias(const at::Tensor& t) {
  if (!t.defined() || !t.is_privateuseone()) return t;
  const c10::Storage& storage = t.storage();
  c10::Storage host(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    c10::DataPtr(const_cast<void*>(storage.data()), c10::DeviceType::CPU),
                    nullptr, /*resizable=*/false);
  at::Tensor alias = over(std::move(host), t, c10::DispatchKey::CPU);
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) {
    alias.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return alias;
}

at::Tensor adopt(const at::Tensor& result, int device) {
  if (!result.defined() || result.is_privateuseone()) return result;
  at::Tensor t = result.resolve_conj().resolve_neg();
  const auto shared = [&] {
    const std::lock_guard lock(state().mutex);
    return state().blocks.contains(t.storage().data());
  };
  // Results of compiled operators are contiguous.
  if (t.storage_offset() != 0 || !t.is_contiguous() || t.storage().use_count() > 1 ||
      shared()) {
    t = t.clone(at::MemoryFormat::Contiguous);
  }
  const size_t bytes = t.storage().nbytes();
  c10::DataPtr data(nullptr, nullptr, &Memory::free_nothing, torch_device(device));
  if (bytes > 0) {
    check_bytes(bytes);
    void* at = const_cast<void*>(t.storage().data());
    add_block(at, bytes);
    data = c10::DataPtr(at, new c10::Storage(t.storage()), &free_adopted,
                        torch_device(device));
  }
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), &memory(),
                       /*resizable=*/true);
  return over(std::move(storage), t, c10::DispatchKey::PrivateUse1);
}

}  // namespace neuron_standin
