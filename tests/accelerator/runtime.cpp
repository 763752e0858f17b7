#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "tests/accelerator/counters.h"
#include "tests/accelerator/memory.h"
#include "tests/accelerator/pinned.h"
#include "tests/accelerator/softdev.h"
#include "tests/accelerator/streams.h"

// Memory, devices, streams and events, which LibTorch needs of a device.

namespace longhaul::softdev {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

c10::Device torch_device(int device) {
  return {kType, static_cast<c10::DeviceIndex>(device)};
}

int index_of(c10::Device device) {
  return device.has_index() ? device.index() : current_device();
}

c10::Stream torch_stream(const Stream& stream) {
  return c10::Stream(c10::Stream::UNSAFE, torch_device(stream.device), stream.id);
}

Stream& own_stream(const c10::Stream& stream) {
  return stream_of(index_of(stream.device()), stream.id());
}

/// Returns true where the device is to lack a function, as a smaller plug-in might.
/// SOFTDEV_LACKS names these functions, with commas between.
bool lacks(const std::string& function) {
  const char* const names = std::getenv("SOFTDEV_LACKS");
  if (names == nullptr) return false;
  return ("," + std::string(names) + ",").find("," + function + ",") != std::string::npos;
}

void free_block(void* block) { give_back(static_cast<Block*>(block)); }

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int device = current_device();
    if (bytes == 0) return {nullptr, nullptr, &free_nothing, torch_device(device)};
    need_device("memory is taken");
    Block* block = take_device(bytes, device);
    return {block->data, block, &free_block, torch_device(device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(kernel_address(to), kernel_address(from), bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    const std::lock_guard lock(state_mutex());
    // The block waits for everything that is in the stream when the block is freed.
    if (Block* block = block_of(data.get())) {
      block->recorded.push_back(&own_stream(stream));
    }
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.num_device_alloc = counters().device_allocations;
    auto& used = stats.allocated_bytes[0];
    used.current = counters().used_bytes;
    used.peak = counters().peak_used_bytes;
    stats.reserved_bytes[0].current = stats.reserved_bytes[0].peak =
        counters().device_bytes;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {
    counters().peak_used_bytes = counters().used_bytes.load();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    if (lacks("getMemoryInfo")) return DeviceAllocator::getMemoryInfo(device);
    return device_memory_free_and_total(device < 0 ? current_device() : device);
  }

 private:
  static void free_nothing(void*) {}
};

class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_nothing, c10::DeviceType::CPU};
    Block* block = take_pinned(bytes);
    return {block->data, block, &free_block, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void free_nothing(void*) {}
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const int before = current_device();
    lend_device(index_of(device));
    return torch_device(before);
  }
  c10::Device getDevice() const override { return torch_device(current_device()); }
  void setDevice(c10::Device device) const override {
    set_current_device(index_of(device));
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (index_of(device) < device_count()) give_device_back(index_of(device));
  }
  c10::Stream getStream(c10::Device device) const override {
    return torch_stream(current_stream(index_of(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return torch_stream(stream_of(index_of(device), 0));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    if (lacks("getStreamFromGlobalPool"))
      return DeviceGuardImplInterface::getStreamFromGlobalPool(device, false);
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    stream_of(index_of(device), 0);
    return torch_stream(new_stream(index_of(device)));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return torch_stream(set_current_stream(own_stream(stream)));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    if (lacks("getStreamNativeHandle"))
      return DeviceGuardImplInterface::getStreamNativeHandle(stream);
    return &own_stream(stream);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag flag) const override {
    if (lacks("record")) DeviceGuardImplInterface::record(event, stream, device, flag);
    need_device("an event is recorded");
    if (*event == nullptr) *event = new Event;
    auto& mark = *static_cast<Event*>(*event);
    if (flag == c10::EventFlag::BACKEND_DEFAULT) take_time(mark, own_stream(stream));
    softdev::record(mark, own_stream(stream));
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    if (lacks("elapsedTime")) return DeviceGuardImplInterface::elapsedTime(from, to, 0);
    const auto& first = static_cast<const Event*>(from)->time;
    const auto& last = static_cast<const Event*>(to)->time;
    TORCH_CHECK(first && last, "events without timing");
    return std::chrono::duration<double, std::milli>(last->load() - first->load())
        .count();
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (lacks("block")) return DeviceGuardImplInterface::block(event, stream);
    need_device("a stream waits for an event");
    if (event != nullptr) wait_event(own_stream(stream), *static_cast<Event*>(event));
  }
  bool queryEvent(void* event) const override {
    if (lacks("queryEvent")) return DeviceGuardImplInterface::queryEvent(event);
    need_device("an event is asked");
    if (event == nullptr) return true;
    auto& asked = *static_cast<Event*>(event);
    ++requests_of_thread();
    const bool done = query(asked);
    if (!done || std::exchange(asked.asked, true)) return done;
    // A host that has launched more behind the event leaves its device at work.
    if (asked.stream != nullptr && asked.launched < asked.stream->launched) return true;
    const bool own = asked.thread == std::this_thread::get_id();
    count_synchronization(own ? "event query" : "event", queued_since(asked));
    return true;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  bool queryStream(const c10::Stream& stream) const override {
    need_device("a stream is asked");
    Event now;
    softdev::record(now, own_stream(stream));
    return query(now);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    need_device("the host waits for a stream");
    synchronize(own_stream(stream));
  }
  void synchronizeEvent(void* event) const override {
    if (lacks("synchronizeEvent"))
      return DeviceGuardImplInterface::synchronizeEvent(event);
    need_device("the host waits for an event");
    if (event != nullptr) synchronize(*static_cast<Event*>(event));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    need_device("the host waits for a device");
    synchronize_device(device < 0 ? current_device() : device);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data,
                             const c10::Stream& stream) const override {
    static_cast<c10::DeviceAllocator*>(c10::GetAllocator(kType))
        ->recordStream(data, stream);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return lacks("isBuilt") ? PrivateUse1HooksInterface::isBuilt() : true;
  }
  bool isAvailable() const override {
    if (lacks("isAvailable")) return PrivateUse1HooksInterface::isAvailable();
    return device_count() > 0;
  }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    if (lacks("hasPrimaryContext")) {
      return PrivateUse1HooksInterface::hasPrimaryContext(device);
    }
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    set_current_device(device);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const int before = current_device();
    lend_device(device);
    return static_cast<c10::DeviceIndex>(before);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  bool isPinnedPtr(const void* data) const override {
    if (lacks("isPinnedPtr")) return PrivateUse1HooksInterface::isPinnedPtr(data);
    const std::lock_guard lock(state_mutex());
    const Block* block = block_of(data);
    return block != nullptr && block->device < 0;
  }
  c10::Allocator* getPinnedMemoryAllocator() const override;
  /// Returns a generator of the CPU, which the CPU's kernels need.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    if (lacks("getDefaultGenerator"))
      return PrivateUse1HooksInterface::getDefaultGenerator(0);
    static const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
    return generator;
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    if (lacks("getNewGenerator")) return PrivateUse1HooksInterface::getNewGenerator(0);
    return at::make_generator<at::CPUGeneratorImpl>();
  }
  c10::Device getDeviceFromPtr(void* data) const override {
    if (lacks("getDeviceFromPtr"))
      return PrivateUse1HooksInterface::getDeviceFromPtr(data);
    const std::lock_guard lock(state_mutex());
    const Block* block = block_of(data);
    TORCH_CHECK(block != nullptr && block->device >= 0, "not memory of the device");
    return torch_device(block->device);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    if (lacks("resizePrivateUse1Bytes"))
      return PrivateUse1HooksInterface::resizePrivateUse1Bytes(storage, bytes);
    c10::DataPtr data = storage.allocator()->allocate(bytes);
    const size_t kept = std::min(bytes, storage.nbytes());
    if (kept > 0) {
      std::memcpy(kernel_address(data.get()), kernel_address(storage.data()), kept);
    }
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
  }
};

DeviceMemory& device_memory() {
  static auto* const made = new DeviceMemory;
  return *made;
}
PinnedMemory& pinned_memory() {
  static auto* const made = new PinnedMemory;
  return *made;
}

c10::Allocator* Hooks::getPinnedMemoryAllocator() const {
  if (lacks("getPinnedMemoryAllocator")) {
    return PrivateUse1HooksInterface::getPinnedMemoryAllocator();
  }
  return &pinned_memory();
}

/// Runs when the library is loaded.
const bool kRegistered = [] {
  counters();
  watch_pinned_memory();
  watch_strays();
  if (!lacks("name")) c10::register_privateuse1_backend("softdev");
  c10::SetAllocator(kType, &device_memory());
  if (!lacks("hooks")) at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::impl::registerDeviceGuard(kType, new Guard);
  return true;
}();

}  // namespace
}  // namespace longhaul::softdev
