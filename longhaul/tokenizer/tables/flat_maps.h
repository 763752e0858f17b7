#pragma once

#include <sys/mman.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

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

/// Returns a fast hash of a short string, for tables in memory only.
inline uint64_t hash_bytes(const char* data, size_t size) {
  constexpr uint64_t kMix = 0x9E3779B97F4A7C15u;
  uint64_t hash = size * kMix;
  const auto mix = [&](uint64_t word) {
    hash = (std::rotl(hash, 25) ^ word) * kMix;
    hash ^= hash >> 32;
  };
  while (size >= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    mix(word);
    data += 8;
    size -= 8;
  }
  uint64_t word = 0;
  std::memcpy(&word, data, size);
  mix(word);
  return hash;
}

/// A map from uint64 keys to small values with open addressing. The key ~0 is not
/// allowed.
template <typename Value>
class FlatMap {
 public:
  explicit FlatMap(size_t expected = 0) { rebuild(expected); }

  const Value* find(uint64_t key) const {
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }
  Value* find(uint64_t key) {
    return const_cast<Value*>(static_cast<const FlatMap*>(this)->find(key));
  }
  /// Returns the value of `key`, which is made from Value{} if absent.
  Value& operator[](uint64_t key) {
    if ((count_ + 1) * 3 > slots_.size() * 2) grow();
    size_t i = slot_of(key);
    for (; slots_[i].key != kEmpty; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].value;
    }
    slots_[i].key = key;
    ++count_;
    return slots_[i].value;
  }
  size_t size() const { return count_; }
  template <typename Visit>
  void each(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.key != kEmpty) visit(slot.key, slot.value);
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Value value{};
  };

  using Slots = std::vector<Slot, LargePages<Slot>>;

  size_t slot_of(uint64_t key) const {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
  }
  void rebuild(size_t expected) {
    const size_t size = std::bit_ceil(expected + expected / 2 + 16);
    slots_.assign(size, Slot{});
    mask_ = size - 1;
    shift_ = 64 - std::countr_zero(size);
    count_ = 0;
  }
  void grow() {
    Slots old = std::move(slots_);
    rebuild(old.size());
    for (Slot& slot : old) {
      if (slot.key != kEmpty) (*this)[slot.key] = std::move(slot.value);
    }
  }

  Slots slots_;
  size_t mask_ = 0;
  int shift_ = 64;
  size_t count_ = 0;
};

}  // namespace longhaul::tokenizer
