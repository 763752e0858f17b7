#pragma once

#include <omp.h>

#include "longhaul/ops/kernels/attention_loops.h"

namespace longhaul::kernels {
namespace {

/// The buffers of one thread for a block of queries in the backward.
template <typename E>
struct BackwardScratch {
  static constexpr int64_t kPair = Element<E>::kPair;
  static constexpr int64_t kScores = kKeyBlock * kQueryBlock;

  explicit BackwardScratch(const AttentionSizes<E>& sizes)
      : query(sizes.row_width * kQueryBlock),
        dout(sizes.row_width * kQueryBlock),
        query_pairs(kQueryBlock / kPair * sizes.padded_dim),
        dout_pairs(kQueryBlock / kPair * sizes.padded_dim),
        scores(kScores),
        dp(kScores),
        p_rows(kScores / kPair),
        ds_rows(kScores / kPair),
        ds_pairs(kScores / kPair),
        dquery(sizes.padded_dim),
        dropout(sizes.shape) {}
  Scratch<E> query, dout;              ///< [D / pair][lane]
  Scratch<E> query_pairs, dout_pairs;  ///< [lane / pair][D]
  Scratch<float> scores, dp;           ///< [key][lane]
  Scratch<E> p_rows, ds_rows;          ///< [key][lane / pair]
  Scratch<E> ds_pairs;                 ///< [key / pair][lane]
  LaneSums<E> dquery;
  DropoutTile dropout;
  [[no_unique_address]] typename Element<E>::Unit unit;
  alignas(64) float lse[kQueryBlock];    ///< lse in base 2: times log2(e)
  alignas(64) float delta[kQueryBlock];  ///< dot product of dout and out
};

/// One query head of one sequence.
template <typename T, typename O>
struct QueryHead {
  int64_t number;
  const T *q, *out, *dout;
  O* dq;
  const float* lse;
  int64_t q_stride, out_stride, dout_stride, dq_stride;
};

/// Gradients of the keys and values of one key head, [padded_keys][D] in fp32: one query
/// head's share, or the sum over the group.
struct KeyGradients {
  float* dk;
  float* dv;
};

template <typename E, typename T, typename O>
void load_queries(const AttentionSizes<E>& sizes, const QueryBlock& block,
                  const QueryHead<T, O>& h, BackwardScratch<E>& w) {
  const int64_t dim = sizes.shape.head_dim;
  const T* q = h.q + block.first * h.q_stride;
  const T* dout = h.dout + block.first * h.dout_stride;
  const T* out = h.out + block.first * h.out_stride;
  const int64_t n = block.count;
  pack_columns(q, h.q_stride, n, block.vecs * kLanes, dim, kQueryBlock, w.query.get());
  pack_columns(dout, h.dout_stride, n, block.vecs * kLanes, dim, kQueryBlock,
               w.dout.get());
  pack_pairs(q, h.q_stride, n, kQueryBlock, dim, sizes.padded_dim, w.query_pairs.get());
  pack_pairs(dout, h.dout_stride, n, kQueryBlock, dim, sizes.padded_dim,
             w.dout_pairs.get());
  for (int64_t i = 0; i < kQueryBlock; ++i) {
    w.lse[i] = 0.0F;
    w.delta[i] = 0.0F;
    if (i >= n) continue;
    w.lse[i] = h.lse[block.first + i] * kLog2E;
    Vec dot = zero();
    for_lanes(dim, [&](int64_t d, auto lanes) {
      dot = fma(load(dout + i * h.dout_stride + d, lanes),
                load(out + i * h.out_stride + d, lanes), dot);
    });
    w.delta[i] = sum_lanes(dot);
  }
}

/// Computes probabilities p and ds = scale p (dp - delta) from scores and dp. With
/// dropout factors r, dp is r dout . v, and r p goes into dv (Dao et al.,
/// "FlashAttention", appendix B.4).
template <bool kDrops, typename E>
void probability_gradients(const QueryBlock& q, const KeyBlock& k, float scale,
                           BackwardScratch<E>& w) {
  constexpr int64_t kPair = Element<E>::kPair;
  constexpr int64_t kRow = kQueryBlock / kPair;
  const float* kept = nullptr;
  if constexpr (kDrops) kept = w.dropout.draw(q, k);
  const Vec c = set1(scale * kLog2E);
  const Vec factor = set1(scale);
  for (int64_t j = 0; j < k.rows; j += kPair) {
    for (int64_t lane = k.lane; lane < q.vecs * kLanes; lane += kLanes) {
      const Vec lse = load(w.lse + lane, Full{});
      const Vec delta = load(w.delta + lane, Full{});
      Vec p[kPair];
      Vec ds[kPair];
      for (int64_t i = 0; i < kPair; ++i) {
        const int64_t at = (j + i) * kQueryBlock + lane;
        const Vec s = load(w.scores.get() + at, Full{});
        p[i] = exp2(sub(mul(s, c), lse));
        if (k.masked) {
          p[i] = select_between(static_cast<int32_t>(k.first + j + i), q.low + lane,
                                q.high + lane, p[i], zero());
        }
        Vec dp = load(w.dp.get() + at, Full{});
        if constexpr (kDrops) dp = mul(dp, load(kept + at, Full{}));
        ds[i] = mul(mul(p[i], sub(dp, delta)), factor);
        if constexpr (kDrops) p[i] = mul(p[i], load(kept + at, Full{}));
      }
      const int64_t row = j * kRow + lane / kPair;
      E* pairs = w.ds_pairs.get() + j / kPair * kQueryBlock + lane;
      // The pairs of p are not needed: the pairs of ds are written over them.
      put_probabilities(p, pairs, w.p_rows.get() + row, kRow);
      put_probabilities(ds, pairs, w.ds_rows.get() + row, kRow);
    }
  }
}

template <typename E>
void backward_key_block(const AttentionSizes<E>& sizes, const QueryBlock& q, int64_t key,
                        const PackedHead<E>& head, const KeyGradients& grads,
                        BackwardScratch<E>& w) {
  constexpr int64_t kPair = Element<E>::kPair;
  constexpr int64_t kRow = kQueryBlock / kPair;
  const KeyBlock k(q, key, Element<E>::kSummed);
  const int64_t width = sizes.row_width;
  const int64_t dim = sizes.padded_dim;
  const int64_t dim_vecs = dim / kLanes;
  const int64_t vecs = q.vecs - k.lane / kLanes;
  small_product<Into::Overwrite>(
      k.rows, vecs, width, Left<E>{head.key_rows + key * width, width, 1},
      w.query.get() + k.lane, kQueryBlock, w.scores.get() + k.lane, kQueryBlock);
  small_product<Into::Overwrite>(
      k.rows, vecs, width, Left<E>{head.value_rows + key * width, width, 1},
      w.dout.get() + k.lane, kQueryBlock, w.dp.get() + k.lane, kQueryBlock);
  if (w.dropout.drops()) {
    probability_gradients<true>(q, k, sizes.shape.scale, w);
  } else {
    probability_gradients<false>(q, k, sizes.shape.scale, w);
  }

  // dV and dK are sums over the queries that see this block of keys. Then dQ is formed, a
  // sum over the keys of the block.
  const int64_t skip = k.lane / kPair;
  const int64_t depth = round_up(q.count, Element<E>::kSummed) / kPair - skip;
  small_product<Into::Add>(
      k.rows, dim_vecs, depth, Left<E>{w.p_rows.get() + skip, kRow, 1},
      w.dout_pairs.get() + skip * dim, dim, grads.dv + key * dim, dim);
  small_product<Into::Add>(
      k.rows, dim_vecs, depth, Left<E>{w.ds_rows.get() + skip, kRow, 1},
      w.query_pairs.get() + skip * dim, dim, grads.dk + key * dim, dim);
  w.dquery.template add<Into::Add>(q, k, w.ds_pairs.get(),
                                   head.key_pairs + key / kPair * dim);
}

/// Replaces one row of a result, or adds to the row (GoOn).
template <Results kResults, typename O>
LH_INLINE void put_row(const float* from, int64_t dim, O* to) {
  for_lanes(dim, [&](int64_t d, auto lanes) {
    Vec x = load(from + d, lanes);
    if constexpr (kResults == Results::GoOn) x = add(load(to + d, lanes), x);
    store(to + d, x, lanes);
  });
}

/// Computes the gradients for all queries of one head; overwrites `grads`.
template <Results kResults, typename E, typename T, typename O>
void backward_head(const AttentionSizes<E>& sizes, int64_t batch,
                   const PackedHead<E>& head, const QueryHead<T, O>& h,
                   const KeyGradients& grads, BackwardScratch<E>& w) {
  const auto bytes =
      static_cast<size_t>(sizes.padded_keys * sizes.padded_dim) * sizeof(float);
  w.dropout.set_head(batch, h.number);
  memset(grads.dk, 0, bytes);
  memset(grads.dv, 0, bytes);
  for (int64_t index = 0; index < sizes.query_blocks; ++index) {
    const QueryBlock block(sizes.shape, batch, index, Element<E>::kColumns);
    if (kResults == Results::GoOn && block.begin >= block.end) continue;
    load_queries(sizes, block, h, w);
    w.dquery.clear(block.count);
    for (int64_t key = block.begin; key < block.end; key += kKeyBlock) {
      backward_key_block(sizes, block, key, head, grads, w);
    }
    const float* dquery = w.dquery.rows(block.count);
    for (int64_t i = 0; i < block.count; ++i) {
      put_row<kResults>(dquery + i * sizes.padded_dim, sizes.shape.head_dim,
                        h.dq + (block.first + i) * h.dq_stride);
    }
  }
}

/// Adds `part` to `sum`, both [padded_keys][D].
template <typename E>
void add_gradients(const AttentionSizes<E>& sizes, const KeyGradients& part,
                   const KeyGradients& sum) {
  for_lanes(sizes.padded_keys * sizes.padded_dim, [&](int64_t i, auto lanes) {
    store(sum.dk + i, add(load(sum.dk + i, lanes), load(part.dk + i, lanes)), lanes);
    store(sum.dv + i, add(load(sum.dv + i, lanes), load(part.dv + i, lanes)), lanes);
  });
}

template <Results kResults, typename E, typename O>
void store_gradients(const AttentionSizes<E>& sizes, const float* from, O* to,
                     int64_t stride) {
  const int64_t dim = sizes.shape.head_dim;
  for (int64_t j = 0; j < sizes.visible; ++j) {
    put_row<kResults>(from + j * sizes.padded_dim, dim, to + j * stride);
  }
  if constexpr (kResults == Results::GoOn) return;
  for (int64_t j = sizes.visible; j < sizes.shape.keys; ++j) {
    memset(static_cast<void*>(to + j * stride), 0, static_cast<size_t>(dim) * sizeof(O));
  }
}

/// The backward's arguments, and the packed keys and values of every key head.
template <typename E, typename T, Results kResults>
struct BackwardTask {
  AttentionBackward<T, kResults> a;
  AttentionSizes<E> sizes;
  const E *key_rows, *key_pairs, *value_rows;

  PackedHead<E> packed(int64_t key_head) const {
    return {key_rows + key_head * sizes.packed_rows(),
            key_pairs + key_head * sizes.packed_pairs(),
            value_rows + key_head * sizes.packed_rows(), nullptr};
  }
  auto query_head(int64_t batch, int64_t head) const {
    auto* dq = rows_of(a.dq, batch, 0, head);
    return QueryHead<T, std::remove_pointer_t<decltype(dq)>>{
        head,
        rows_of(a.q, batch, 0, head),
        rows_of(a.out, batch, 0, head),
        rows_of(a.dout, batch, 0, head),
        dq,
        a.lse + (batch * a.shape.query_heads + head) * a.shape.queries,
        a.q.strides.token,
        a.out.strides.token,
        a.dout.strides.token,
        a.dq.strides.token};
  }
  void store(int64_t batch, int64_t key_head, const KeyGradients& sum) const {
    store_gradients<kResults>(sizes, sum.dk, rows_of(a.dk, batch, 0, key_head),
                              a.dk.strides.token);
    store_gradients<kResults>(sizes, sum.dv, rows_of(a.dv, batch, 0, key_head),
                              a.dv.strides.token);
  }
  int64_t gradient_size() const { return sizes.padded_keys * sizes.padded_dim; }
};

/// Computes one item per (sequence, key head); a thread takes the query heads of a group
/// one after the other.
template <typename E, typename T, Results kResults>
void backward_by_group(const BackwardTask<E, T, kResults>& task, BackwardScratch<E>& w) {
  const AttentionShape& s = task.sizes.shape;
  const int64_t size = task.gradient_size();
  const Scratch<float> buffer(4 * size);
  const KeyGradients sum{buffer.get(), buffer.get() + size};
  const KeyGradients part{buffer.get() + 2 * size, buffer.get() + 3 * size};
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < s.batch * s.key_heads; ++i) {
    const int64_t batch = i / s.key_heads;
    const int64_t key_head = i % s.key_heads;
    for (int64_t g = 0; g < task.sizes.group; ++g) {
      const auto head = task.query_head(batch, key_head * task.sizes.group + g);
      backward_head<kResults>(task.sizes, batch, task.packed(i), head,
                              g == 0 ? sum : part, w);
      if (g > 0) add_gradients(task.sizes, part, sum);
    }
    task.store(batch, key_head, sum);
  }
}

/// Computes one item per query head, for many threads. `buffer` holds all heads'
/// gradients, which are added in the order of backward_by_group().
template <typename E, typename T, Results kResults>
void backward_by_head(const BackwardTask<E, T, kResults>& task, float* buffer,
                      BackwardScratch<E>& w) {
  const AttentionShape& s = task.sizes.shape;
  const int64_t size = task.gradient_size();
  const auto grads = [&](int64_t head) {
    return KeyGradients{buffer + 2 * head * size, buffer + (2 * head + 1) * size};
  };
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < s.batch * s.query_heads; ++i) {
    const int64_t batch = i / s.query_heads;
    backward_head<kResults>(task.sizes, batch, task.packed(i / task.sizes.group),
                            task.query_head(batch, i % s.query_heads), grads(i), w);
  }
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < s.batch * s.key_heads; ++i) {
    const int64_t first = i * task.sizes.group;
    for (int64_t g = 1; g < task.sizes.group; ++g) {
      add_gradients(task.sizes, grads(first + g), grads(first));
    }
    task.store(i / s.key_heads, i % s.key_heads, grads(first));
  }
}

template <typename E, typename T, Results kResults>
void attention_backward_loop(const AttentionBackward<T, kResults>& a) {
  const AttentionShape& s = a.shape;
  const int threads = omp_get_max_threads();
  const AttentionSizes<E> sizes(s);
  const int64_t key_heads = s.batch * s.key_heads;
  const Scratch<E> key_rows(key_heads * sizes.packed_rows());
  const Scratch<E> key_pairs(key_heads * sizes.packed_pairs());
  const Scratch<E> value_rows(key_heads * sizes.packed_rows());
  const BackwardTask<E, T, kResults> task{a, sizes, key_rows.get(), key_pairs.get(),
                                          value_rows.get()};
  const bool by_head =
      sizes.group > 1 && key_heads % threads != 0 && key_heads < 2 * threads;
  const Scratch<float> buffer(by_head ? 2 * s.batch * s.query_heads * task.gradient_size()
                                      : 0);
#pragma omp parallel num_threads(threads)
  {
    pack_heads(sizes, a.k, key_rows.get(), key_pairs.get());
    pack_heads(sizes, a.v, value_rows.get(), static_cast<E*>(nullptr));
    BackwardScratch<E> scratch(sizes);
    if (by_head) {
      backward_by_head(task, buffer.get(), scratch);
    } else {
      backward_by_group(task, scratch);
    }
  }
}

}  // namespace
}  // namespace longhaul::kernels
