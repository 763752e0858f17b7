#include "longhaul/tensor/cpu_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/core.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "longhaul/base/refused.h"
#include "longhaul/base/text.h"
#include "longhaul/system/memory.h"

namespace longhaul::tensor {
namespace {

/// The word before the first element of a tensor holds the address that malloc returned,
/// so that the address of the element is enough to free the memory. Some operators of
/// LibTorch rely on that.
class AlignedMalloc final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    constexpr size_t kRoom = kAlignment + sizeof(void*);
    if (bytes == 0) return {nullptr, nullptr, &give_back, cpu()};
    char* memory = static_cast<char*>(std::malloc(bytes + kRoom));
    if (memory == nullptr) {
      throw refused("memory", human_bytes(bytes) + " more for a tensor", ENOMEM,
                    "free memory, or set a smaller batch.micro_size or memory.recompute");
    }
    const auto after_word = reinterpret_cast<uintptr_t>(memory) + sizeof(void*);
    char* data = memory + sizeof(void*) + (kAlignment - after_word % kAlignment);
    std::memcpy(data - sizeof(void*), static_cast<const void*>(&memory), sizeof(void*));
    return {data, data, &give_back, cpu()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static constexpr size_t kAlignment = 64;  ///< as LibTorch's

  static c10::Device cpu() { return c10::Device(c10::DeviceType::CPU); }

  static void give_back(void* data) {
    if (data == nullptr) return;
    void* memory = nullptr;
    std::memcpy(static_cast<void*>(&memory), static_cast<char*>(data) - sizeof(void*),
                sizeof(void*));
    std::free(memory);
  }
};

}  // namespace

void tune_cpu_memory() {
  system::tune_malloc();
  // The allocator is never destroyed, since a tensor may outlive static objects.
  static auto* const memory = new AlignedMalloc;
  c10::SetCPUAllocator(memory, /*priority=*/1);
}

}  // namespace longhaul::tensor
