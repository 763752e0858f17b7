#include "longhaul/rehearsal/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::rehearsal {
namespace {

/// The addresses of one region.
constexpr size_t kRegion = size_t{1} << 40;

std::shared_ptr<Memory>& of_thread() {
  thread_local std::shared_ptr<Memory> memory;
  return memory;
}

}  // namespace

Memory::~Memory() {
  for (std::byte* region : regions_) ::munmap(region, kRegion);
}

size_t Memory::rounded(size_t bytes) {
  size_t step = 512;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

void* Memory::take(size_t bytes) {
  const size_t size = rounded(std::max<size_t>(bytes, 1));
  if (size > kRegion) {
    fail_config("rehearse",
                "a tensor would have {} bytes, and no device holds more than {}; lower "
                "batch.micro_size or data.seq_len",
                bytes, kRegion);
  }
  used_ += static_cast<int64_t>(size);
  peak_ = std::max(peak_, used_);
  std::vector<void*>& free = free_[size];
  if (!free.empty()) {
    void* address = free.back();
    free.pop_back();
    return address;
  }
  if (left_ < size) {
    void* region = ::mmap(nullptr, kRegion, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) {
      fail_temporary("rehearse",
                     "no addresses for the memory of a rank: {}; raise the limit of "
                     "virtual memory (ulimit -v)",
                     std::strerror(errno));
    }
    regions_.push_back(static_cast<std::byte*>(region));
    left_ = kRegion;
  }
  std::byte* address = regions_.back() + (kRegion - left_);
  left_ -= size;
  return address;
}

void Memory::give_back(void* address, size_t bytes) {
  const size_t size = rounded(std::max<size_t>(bytes, 1));
  used_ -= static_cast<int64_t>(size);
  free_[size].push_back(address);
}

bool Memory::has(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  return std::ranges::any_of(regions_, [&](const std::byte* region) {
    return at >= region && at < region + kRegion;
  });
}

PlayedMemory::PlayedMemory(std::shared_ptr<Memory> memory)
    : before_(std::exchange(of_thread(), std::move(memory))) {}

PlayedMemory::~PlayedMemory() { of_thread() = std::move(before_); }

const std::shared_ptr<Memory>& PlayedMemory::current() { return of_thread(); }

}  // namespace longhaul::rehearsal
