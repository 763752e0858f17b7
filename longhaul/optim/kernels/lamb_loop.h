#pragma once

// The loops of LAMB, compiled once per instruction set. Everything here has internal
// linkage: an inline function shared with other files could be linked from this file's
// AVX-512 form into all of them.

#include "longhaul/optim/kernels/elements.h"
#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/optim/kernels/lamb.h"

namespace longhaul::optim {
namespace {

/// Elements whose directions are formed before the squares are added: they stay in cache.
constexpr int64_t kLambChunk = 1024;
/// Elements of LAMB's second pass that a thread takes at a time.
constexpr int64_t kLambBlock = 16384;
template <typename G, typename M, typename R>
void new_moments(int64_t begin, int64_t end, const G* __restrict grad,
                 M* __restrict exp_avg, M* __restrict exp_avg_sq, const AdamWScalars s,
                 const R rounding) {
  for (int64_t i = begin; i < end; ++i) {
    const auto [m, v] =
        next_moments(get(grad, i), get(exp_avg, i), get(exp_avg_sq, i), s);
    rounding.template put_rounded<kRoundExpAvg>(exp_avg, i, m);
    rounding.template put_rounded<kRoundExpAvgSq>(exp_avg_sq, i, v);
  }
}

/// Forms the directions in which LAMB moves the masters, from the moments as they are
/// stored, since the second pass reads the stored moments.
template <typename P, typename M>
void directions(int64_t begin, int64_t end, const P* __restrict master,
                const M* __restrict exp_avg, const M* __restrict exp_avg_sq,
                float* __restrict direction, const AdamWScalars s, float decay) {
  for (int64_t i = begin; i < end; ++i) {
    direction[i - begin] =
        lamb_direction(get(master, i), get(exp_avg, i), get(exp_avg_sq, i), s, decay);
  }
}

template <typename G, typename P, typename M>
void moments_range(const AdamWRange& r, const AdamWScalars& s, float decay,
                   int64_t update_number, LambSums* partial) {
  const auto* grad = static_cast<const G*>(r.grad);
  const auto* master = static_cast<const P*>(r.master);
  auto* exp_avg = static_cast<M*>(r.exp_avg);
  auto* exp_avg_sq = static_cast<M*>(r.exp_avg_sq);
  for_blocks(r.count, kNormBlock, [&](int64_t begin, int64_t end) {
    float direction[kLambChunk];
    SquareLanes weight;
    SquareLanes update;
    for (int64_t i = begin; i < end; i += kLambChunk) {
      const int64_t next = i + kLambChunk < end ? i + kLambChunk : end;
      const auto form = [&](int64_t from, int64_t to, const auto& rounding) {
        new_moments(from, to, grad, exp_avg, exp_avg_sq, s, rounding);
      };
      if (r.rounding == nullptr) {
        form(i, next, Nearest());
      } else {
        for_numbered(*r.rounding, update_number, i, next, form);
      }
      directions(i, next, master, exp_avg, exp_avg_sq, direction, s, decay);
      weight.add(master + i, next - i);
      update.add(direction, next - i);
    }
    partial[begin / kNormBlock] = {weight.sum(), update.sum()};
  });
}

template <typename P, typename M, typename W, typename R>
void apply_block(int64_t begin, int64_t end, P* __restrict master,
                 const M* __restrict exp_avg, const M* __restrict exp_avg_sq,
                 W* __restrict weight, const AdamWScalars s, const R rounding) {
  for (int64_t i = begin; i < end; ++i) {
    const float p = lamb_moved(get(master, i), get(exp_avg, i), get(exp_avg_sq, i), s);
    rounding.template put_rounded<kRoundMaster>(master, i, p);
    put(weight, i, p);
  }
}

template <typename P, typename M, typename W>
void apply_range(const AdamWRange& r, const AdamWScalars& s, W* weight, int64_t update) {
  auto* master = static_cast<P*>(r.master);
  const auto* exp_avg = static_cast<const M*>(r.exp_avg);
  const auto* exp_avg_sq = static_cast<const M*>(r.exp_avg_sq);
  for_blocks(r.count, kLambBlock, [&](int64_t begin, int64_t end) {
    const auto move = [&](int64_t from, int64_t to, const auto& rounding) {
      apply_block(from, to, master, exp_avg, exp_avg_sq, weight, s, rounding);
    };
    if (r.rounding == nullptr) {
      move(begin, end, Nearest());
    } else {
      for_numbered(*r.rounding, update, begin, end, move);
    }
  });
}

void lamb_moments_any(const AdamWRange& r, const AdamWScalars& s, float decay,
                      int64_t update, LambSums* partial) {
  with_master(r, [&]<typename P>(P*) {
    with_type(r.grad_dtype, [&]<typename G>(G*) {
      with_type(r.moments_dtype, [&]<typename M>(M*) {
        moments_range<G, P, M>(r, s, decay, update, partial);
      });
    });
  });
}

void lamb_apply_any(const AdamWRange& r, const AdamWScalars& s, int64_t update) {
  with_weight(r, [&]<typename P, typename W>(P*, W* weight) {
    with_type(r.moments_dtype,
              [&]<typename M>(M*) { apply_range<P, M>(r, s, weight, update); });
  });
}

}  // namespace
}  // namespace longhaul::optim
