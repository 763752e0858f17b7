#pragma once

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstdint>
#include <memory>

// Counts the live bytes of LibTorch's CPU memory for the thread that has asked for them.
// If each rank is a thread, it counts by rank.

namespace longhaul::testing {

class CountedMemory : public c10::Allocator {
 public:
  /// Makes this class the allocator of LibTorch's CPU memory, from now on in this
  /// process.
  static void install() {
    static CountedMemory memory;
    c10::SetCPUAllocator(&memory, /*priority=*/1);
  }
  /// Returns the bytes that this thread has asked for and that nobody has given back.
  static int64_t live() { return mine()->load(); }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    auto* header = static_cast<Header*>(c10::alloc_cpu(sizeof(Header) + bytes));
    new (header) Header{mine(), static_cast<int64_t>(bytes)};
    *header->account += header->bytes;
    void* data = header + 1;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  using Account = std::shared_ptr<std::atomic<int64_t>>;
  /// Stands before every block. Its size keeps blocks aligned.
  struct alignas(c10::gAlignment) Header {
    Account account;
    int64_t bytes;
  };
  static Account& mine() {
    thread_local Account account = std::make_shared<std::atomic<int64_t>>(0);
    return account;
  }
  static void release(void* data) {
    if (data == nullptr) return;
    Header* header = static_cast<Header*>(data) - 1;
    *header->account -= header->bytes;
    header->~Header();
    c10::free_cpu(header);
  }
};

}  // namespace longhaul::testing
