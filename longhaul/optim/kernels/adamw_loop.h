#pragma once

// The loop of AdamW, compiled once per instruction set. Everything here has internal
// linkage and nothing is called from elsewhere: an inline function shared with other
// files could be linked from this file's AVX-512 form into all of them.

#include <immintrin.h>

#include "longhaul/optim/kernels/adamw.h"
#include "longhaul/optim/kernels/elements.h"

namespace longhaul::optim {
namespace {

/// Elements that a thread takes at a time.
constexpr int64_t kAdamWBlock = 16384;

template <typename G, typename P, typename M, typename W, typename R>
void update_block(int64_t begin, int64_t end, const G* __restrict grad,
                  P* __restrict master, M* __restrict exp_avg, M* __restrict exp_avg_sq,
                  W* __restrict weight, const AdamWScalars s, const R rounding) {
  for (int64_t i = begin; i < end; ++i) {
    const auto [m, v] =
        next_moments(get(grad, i), get(exp_avg, i), get(exp_avg_sq, i), s);
    const float p = adamw_moved(get(master, i), m, v, s);
    rounding.template put_rounded<kRoundExpAvg>(exp_avg, i, m);
    rounding.template put_rounded<kRoundExpAvgSq>(exp_avg_sq, i, v);
    rounding.template put_rounded<kRoundMaster>(master, i, p);
    put(weight, i, p);
  }
}

/// Copies past the caches if the address allows, since memory that is only written need
/// not be read. A thread must fence after its last call.
inline void write_past(const uint16_t* from, uint16_t* to, int64_t count) {
  constexpr int64_t kLanes = sizeof(__m256i) / sizeof(uint16_t);
  int64_t i = 0;
  if (reinterpret_cast<uintptr_t>(to) % sizeof(__m256i) == 0) {
    for (; i + kLanes <= count; i += kLanes) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                          _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i)));
    }
  }
  for (; i < count; ++i) to[i] = from[i];
}

template <typename G, typename M, typename W>
void update_range(const AdamWRange& r, const AdamWScalars& s, W* weight) {
  const auto* grad = static_cast<const G*>(r.grad);
  auto* master = static_cast<float*>(r.master);
  auto* exp_avg = static_cast<M*>(r.exp_avg);
  auto* exp_avg_sq = static_cast<M*>(r.exp_avg_sq);
  for_blocks(r.count, kAdamWBlock, [&](int64_t first, int64_t last) {
    for_chunks(first, last, [&](int64_t begin, int64_t end) {
      ask_ahead(begin, end, r.count, grad, master, exp_avg, exp_avg_sq);
      const auto update = [&](W* weights) {
        update_block(0, end - begin, grad + begin, master + begin, exp_avg + begin,
                     exp_avg_sq + begin, weights, s, Nearest());
      };
      if constexpr (std::is_same_v<W, uint16_t>) {
        alignas(64) uint16_t weights[kChunk];
        update(weights);
        write_past(weights, weight + begin, end - begin);
      } else if constexpr (std::is_same_v<W, NoWeight>) {
        update(nullptr);
      } else {
        update(weight + begin);
      }
    });
    _mm_sfence();
  });
}

template <typename G, typename M>
void update_rounded(const AdamWRange& r, const AdamWScalars& s, int64_t update) {
  const auto* grad = static_cast<const G*>(r.grad);
  auto* master = static_cast<uint16_t*>(r.master);
  auto* exp_avg = static_cast<M*>(r.exp_avg);
  auto* exp_avg_sq = static_cast<M*>(r.exp_avg_sq);
  for_blocks(r.count, kAdamWBlock, [&](int64_t begin, int64_t end) {
    for_numbered(*r.rounding, update, begin, end,
                 [&](int64_t from, int64_t to, const Stochastic& rounding) {
                   update_block(from, to, grad, master, exp_avg, exp_avg_sq,
                                static_cast<NoWeight*>(nullptr), s, rounding);
                 });
  });
}

void adamw_any(const AdamWRange& r, const AdamWScalars& s, int64_t update) {
  with_weight(r, [&]<typename P, typename W>(P*, W* weight) {
    with_type(r.grad_dtype, [&]<typename G>(G*) {
      with_type(r.moments_dtype, [&]<typename M>(M*) {
        if constexpr (std::is_same_v<P, float>) {
          update_range<G, M>(r, s, weight);
        } else {
          update_rounded<G, M>(r, s, update);
        }
      });
    });
  });
}

}  // namespace
}  // namespace longhaul::optim
