#pragma once

#include "longhaul/cuda/kernels/device.cuh"
#include "longhaul/cuda/kernels/update_kernels.h"
#include "longhaul/optim/kernels/element.h"
#include "longhaul/optim/kernels/element_types.h"

// The kernels of the optimizers walk flat memory 16 bytes at a time if all arrays can be
// aligned at the same element, as parts of flat buffers can.

namespace longhaul::optim::cuda {
namespace {

using kernels::cuda::kBlock;
using kernels::cuda::load;
using kernels::cuda::Pack;
using kernels::cuda::store;

/// The number of elements that a thread takes at a time: 16 bytes of bf16, 32 of fp32.
constexpr int kEach = 8;

inline bool fits(const NoWeight*, int) { return true; }
/// Returns whether an aligned access of 16 bytes begins `lead` elements before the array.
template <typename T>
bool fits(const T* array, int lead) {
  return reinterpret_cast<uintptr_t>(array) % 16 == lead * sizeof(T) % 16;
}

/// Returns the smallest number of elements before the starts of the arrays at which
/// accesses of 16 bytes are aligned for all arrays. Returns -1 if there is no such
/// number, or if the rounding must take elements one by one.
template <typename Rounding, typename... T>
int lead_of(const Rounding& rounding, const T*... arrays) {
  if (rounding.one_by_one) return -1;
  for (int lead = 0; lead < kEach; ++lead) {
    if ((fits(arrays, lead) && ...)) return lead;
  }
  return -1;
}

/// Calls act.at<N>(i) for the elements in [0, count) among the kEach elements from
/// `first` on. There is one call for all elements or, at the ends and without alignment,
/// one call for each element.
template <typename Act>
__device__ void for_each_of(int64_t first, int64_t count, bool aligned, Act& act) {
  if (aligned && first >= 0 && first + kEach <= count) {
    act.template at<kEach>(first);
    return;
  }
  for (int64_t i = first; i < first + kEach; ++i) {
    if (i >= 0 && i < count) act.template at<1>(i);
  }
}

template <typename Update>
__global__ void update_kernel(Update update, int64_t count, int lead) {
  const int64_t place = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if constexpr (requires { update.begin(); }) update.begin();
  for_each_of(place * kEach - (lead > 0 ? lead : 0), count, lead >= 0, update);
}

template <typename Update>
void enqueue_update(const char* name, const Update& update, int64_t count, int lead,
                    Stream stream) {
  if (count == 0) return;
  const int64_t blocks =
      kernels::cuda::blocks_of(count + (lead > 0 ? lead : 0), kBlock * kEach);
  kernels::cuda::launch(name, update_kernel<Update>, blocks, stream, update, count, lead);
}

template <int N>
__device__ void store_weight(NoWeight*, int64_t, const float (&)[N]) {}
template <int N, typename W>
__device__ void store_weight(W* weight, int64_t i, const float (&x)[N]) {
  Pack<W, N> pack;
  for (int j = 0; j < N; ++j) assign_nearest(pack.of[j], x[j]);
  store(weight + i, pack);
}

/// Rounds to the nearest.
struct ToNearest {
  static constexpr bool one_by_one = false;
  /// Rounds N elements from i on, one after another.
  template <int N>
  struct Walk {
    __device__ Walk(const ToNearest&, int64_t) {}
    template <RoundingOf kOf, typename T>
    __device__ void assign(T& to, float x) const {
      assign_nearest(to, x);
    }
    __device__ void next() {}
  };
};

/// Rounds stochastically, by random bits that depend on the numbers of the elements.
struct AtRandom {
  AtRandom(const AdamWRange& range, int64_t of_update)
      : rounding(*range.rounding), update(of_update) {
    const auto high = [&](int64_t i) {
      return number_of(rounding.place, rounding.place.begin + i) >> 32;
    };
    one_by_one = range.count > 0 && high(0) != high(range.count - 1);
    keys = rounding_keys(rounding.key, update, high(0));
  }

  template <int N>
  struct Walk {
    __device__ Walk(const AtRandom& of, int64_t i)
        : keys(of.keys), place(of.rounding.place) {
      const int64_t own = place.begin + i;
      const int64_t all = number_of(place, own);
      number = static_cast<uint32_t>(all);
      left = place.row - own % place.row;
      if constexpr (N == 1) {
        if (of.one_by_one) keys = drawn_keys(of.rounding.key, of.update, all >> 32);
      }
    }
    template <RoundingOf kOf, typename T>
    __device__ void assign(T& to, float x) const {
      assign_random<kOf>(to, x, number, keys);
    }
    __device__ void next() {
      ++number;
      if (--left > 0) return;
      left = place.row;
      number += static_cast<uint32_t>(place.stride - place.row);
    }

    RoundingKeys keys;
    const ElementPlace& place;
    int64_t left;     ///< elements of the row from the current element on
    uint32_t number;  ///< lower 32 bits of the number of the current element
  };

  Rounding rounding;
  int64_t update;
  RoundingKeys keys;
  bool one_by_one;  ///< the keys differ, since the upper 32 bits of the numbers differ
};

/// Returns how masters of type P, and the moments, are rounded.
template <typename P>
auto rounding_for(const AdamWRange& r, int64_t update) {
  if constexpr (std::is_same_v<P, float>) {
    return ToNearest();
  } else {
    return AtRandom(r, update);
  }
}

}  // namespace
}  // namespace longhaul::optim::cuda
