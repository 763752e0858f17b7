#include "longhaul/rehearsal/device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <memory>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/rehearsal/kernels.h"
#include "longhaul/rehearsal/memory.h"

namespace longhaul::rehearsal {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);

struct Block {
  std::shared_ptr<Memory> memory;
  void* address;
  size_t bytes;
};

void free_block(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  block->memory->give_back(block->address, block->bytes);
}

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_nothing, kDevice};
    const std::shared_ptr<Memory>& memory = PlayedMemory::current();
    LH_CHECK(memory != nullptr, "rehearse", "{} bytes of the device for no rank", bytes);
    void* address = memory->take(bytes);
    return {address, new Block{memory, address, bytes}, &free_block, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void*, const void*, size_t) const override {}
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    if (const std::shared_ptr<Memory>& memory = PlayedMemory::current()) {
      stats.allocated_bytes[0].current = memory->used();
      stats.allocated_bytes[0].peak = memory->peak();
    }
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}

 private:
  static void free_nothing(void*) {}
};

/// Everything that is put into a stream has been done at once.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream getDefaultStream(c10::Device) const override { return getStream(kDevice); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    return getStream(kDevice);
  }
  c10::Stream getNewStream(c10::Device, int) const override { return getStream(kDevice); }
  c10::Stream exchangeStream(c10::Stream) const override { return getStream(kDevice); }
  void* getStreamNativeHandle(const c10::Stream) const override { return nullptr; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {}
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 0.0; }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override {
    note_host_wait();
    return true;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { note_host_wait(); }
  void synchronizeEvent(void*) const override { note_host_wait(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { note_host_wait(); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void*) const override { return false; }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return c10::GetCPUAllocator();
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
    return generator;
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::make_generator<at::CPUGeneratorImpl>();
  }
  c10::Device getDeviceFromPtr(void*) const override { return kDevice; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    storage.set_data_ptr_noswap(storage.allocator()->allocate(bytes));
    storage.set_nbytes(bytes);
  }
};

}  // namespace

void install_device(const std::set<std::string>& lacks) {
  check_names(lacks);
  static DeviceMemory memory;
  static Guard guard;
  static Hooks hooks;
  c10::register_privateuse1_backend("rehearsal");
  c10::SetAllocator(kType, &memory);
  const c10::impl::DeviceGuardImplRegistrar registrar(kType, &guard);
  at::RegisterPrivateUse1HooksInterface(&hooks);
  add_kernels(lacks);
}

}  // namespace longhaul::rehearsal
