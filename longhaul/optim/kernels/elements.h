#pragma once

// The loops of the optimizers read, write and round elements by these functions.
// Everything has internal linkage, since files of several instruction sets include this
// header.

#include <cstdint>
#include <type_traits>

#include "longhaul/optim/kernels/element.h"
#include "longhaul/optim/kernels/element_types.h"

namespace longhaul::optim {
namespace {

template <typename T>
[[gnu::always_inline]] inline float get(const T* p, int64_t i) {
  return widened(p[i]);
}
template <typename T>
[[gnu::always_inline]] inline void put(T* p, int64_t i, float x) {
  assign_nearest(p[i], x);
}
[[gnu::always_inline]] inline void put(NoWeight*, int64_t, float) {}

/// A sum of squares as running sums side by side: the order of addition is fixed, and the
/// compiler can use vectors.
struct SquareLanes {
  static constexpr int64_t kLanes = kSquareLanes;
  double of[kLanes] = {};

  template <typename T>
  [[gnu::always_inline]] void add(const T* x, int64_t count) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const auto wide = static_cast<double>(get(x, i + lane));
        of[lane] += wide * wide;
      }
    }
    for (; i < count; ++i) {
      const auto wide = static_cast<double>(get(x, i));
      of[i % kLanes] += wide * wide;
    }
  }
  [[gnu::always_inline]] double sum() const {
    double total = 0.0;
    for (int64_t lane = 0; lane < kLanes; ++lane) total += of[lane];
    return total;
  }
};

/// Calls act(begin, end) for blocks of `block` elements, on several threads.
template <typename Act>
void for_blocks(int64_t count, int64_t block, const Act& act) {
  const int64_t blocks = (count + block - 1) / block;
#pragma omp parallel for schedule(static) if (blocks > 1)
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * block;
    act(begin, begin + block < count ? begin + block : count);
  }
}

/// Elements that are prefetched and computed together.
constexpr int64_t kChunk = 64;
/// The distance of prefetches: elements arrive before they are used, and are still in the
/// first cache then.
constexpr int64_t kAhead = 512;

/// Prefetches the elements of each x that come kAhead after [begin, end), of `count`
/// elements in all; for writing too if x is not const. Without this a processor that
/// follows several streams reaches four fifths of the rate of the memory.
template <typename... T>
[[gnu::always_inline]] inline void ask_ahead(int64_t begin, int64_t end, int64_t count,
                                             T*... x) {
  constexpr int64_t kLine = 64 / sizeof(float);
  const int64_t last = end + kAhead < count ? end + kAhead : count;
  for (int64_t i = begin + kAhead; i < last; i += kLine) {
    (__builtin_prefetch(x + i, std::is_const_v<T> ? 0 : 1), ...);
  }
}

/// Calls act(begin, end) for chunks of [begin, end).
template <typename Act>
[[gnu::always_inline]] inline void for_chunks(int64_t begin, int64_t end,
                                              const Act& act) {
  for (int64_t i = begin; i < end; i += kChunk) {
    act(i, i + kChunk < end ? i + kChunk : end);
  }
}

/// Rounds to the nearest, ties to even.
struct Nearest {
  template <RoundingOf kOf, typename T>
  [[gnu::always_inline]] void put_rounded(T* p, int64_t i, float x) const {
    put(p, i, x);
  }
};

/// Rounds up or down at random. The elements from `begin` on have the indices from
/// `first` on in their tensor.
struct Stochastic {
  RoundingKeys keys = {};
  uint32_t first = 0;
  int64_t begin = 0;

  template <RoundingOf kOf, typename T>
  [[gnu::always_inline]] void put_rounded(T* p, int64_t i, float x) const {
    assign_random<kOf>(p[i], x, first + static_cast<uint32_t>(i - begin), keys);
  }
};

/// Calls act(begin, end, rounding) for parts of [begin, end) whose elements have
/// ascending indices in their tensor, of which the upper 32 bits are the same.
template <typename Act>
void for_numbered(const Rounding& rounding, int64_t update, int64_t begin, int64_t end,
                  const Act& act) {
  const ElementPlace& place = rounding.place;
  Stochastic stochastic;
  int64_t high = -1;
  while (begin < end) {
    const int64_t own = place.begin + begin;
    const int64_t number = number_of(place, own);
    int64_t length = place.row - own % place.row;
    const int64_t before_carry = (int64_t{1} << 32) - (number & 0xFFFFFFFF);
    if (before_carry < length) length = before_carry;
    if (end - begin < length) length = end - begin;
    if (number >> 32 != high) {
      high = number >> 32;
      stochastic.keys = rounding_keys(rounding.key, update, high);
    }
    stochastic.first = static_cast<uint32_t>(number);
    stochastic.begin = begin;
    act(begin, begin + length, stochastic);
    begin += length;
  }
}

}  // namespace
}  // namespace longhaul::optim
