#pragma once

// Elements as the optimizers' loops read and write them, and the two ways to round them.
// As in those loops everything has internal linkage, since files of several instruction
// sets include it.

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

/// A sum of squares by running sums side by side: the order of addition is fixed, and
/// vectors are possible.
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

/// Elements of a block that are asked for and computed together.
constexpr int64_t kChunk = 64;
/// What is asked for comes before it is used, and is still in the first cache then.
constexpr int64_t kAhead = 512;

/// Asks for the memory of each x that comes kAhead after [begin, end), of `count`
/// elements, to write it too where it is not const. By itself a processor that has to
/// follow several streams gets four fifths of the memory's rate.
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

/// To the nearest, ties to even.
struct Nearest {
  template <RoundingOf kOf, typename T>
  [[gnu::always_inline]] void put_rounded(T* p, int64_t i, float x) const {
    put(p, i, x);
  }
};

/// Up or down at random. Elements i from `begin` on have the numbers from `first` on in
/// their tensor.
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
/// ascending numbers in their tensor, of which the upper 32 bits are the same.
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
