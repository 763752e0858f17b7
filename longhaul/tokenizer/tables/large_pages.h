#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace longhaul::tokenizer {

/// An allocator for large tables with random accesses. It uses large pages, because with
/// small pages nearly every access would also miss the TLB.
template <typename T>
struct LargePages {
  using value_type = T;
  LargePages() = default;
  template <typename Other>
  LargePages(const LargePages<Other>& /*other*/) {}

  T* allocate(size_t count) {
    if (count > SIZE_MAX / 2 / sizeof(T)) throw std::bad_array_new_length();
    const size_t bytes = count * sizeof(T);
    const size_t page = bytes < kPage ? kSmall : kPage;
    void* memory = std::aligned_alloc(page, (bytes + page - 1) / page * page);
    if (!memory) throw std::bad_alloc();
    if (page == kPage) ::madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t /*count*/) { std::free(memory); }
  bool operator==(const LargePages&) const = default;

 private:
  static constexpr size_t kPage = size_t{1} << 21;
  static constexpr size_t kSmall = 64;
};

}  // namespace longhaul::tokenizer
