#pragma once

#include "longhaul/ops/kernels/attention_pack.h"
#include "longhaul/ops/kernels/draws.h"

// These loops compute attention in blocks of queries and keys with a running softmax (Dao
// et al., "FlashAttention"), by the micro-kernels of tile.h. Scores are held transposed,
// [key][query]: the softmax then runs along vectors, one lane per query, and keys need no
// transposition. Names: D is the head dim, and a lane is the index of a query inside its
// block.

namespace longhaul::kernels {
namespace {

/// The number of queries and of keys in a block: all memory that a block touches stays in
/// L2.
constexpr int64_t kQueryBlock = 128;
constexpr int64_t kKeyBlock = 64;
/// The score of a hidden key, which stands for minus infinity and keeps differences
/// finite.
constexpr float kHidden = -1e30F;

/// Sizes derived from a shape.
template <typename E>
struct AttentionSizes {
  explicit AttentionSizes(const AttentionShape& s)
      : shape(s),
        group(s.query_heads / s.key_heads),
        query_blocks(ceil_div(s.queries, kQueryBlock)),
        visible(s.document_end != nullptr
                    ? s.keys
                    : larger(0, smaller(s.keys, s.query_offset + s.queries))),
        padded_keys(round_up(visible, kKeyBlock)),
        row_width(round_up(s.head_dim, Element<E>::kSummed) / Element<E>::kPair),
        padded_dim(round_up(s.head_dim, Element<E>::kColumns)) {}

  AttentionShape shape;
  int64_t group;
  int64_t query_blocks;
  int64_t visible;      ///< keys that some query may see
  int64_t padded_keys;  ///< `visible` rounded up to a whole block
  int64_t row_width;    ///< elements that a row of D values takes
  int64_t padded_dim;   ///< D rounded up to whole columns of products

  int64_t packed_rows() const { return padded_keys * row_width; }
  int64_t packed_pairs() const { return padded_keys / Element<E>::kPair * padded_dim; }
};

/// One block of queries, one query in each SIMD lane, and the keys that these queries
/// see.
struct QueryBlock {
  int64_t first;                          ///< index of lane 0's query in the sequence
  int64_t count;                          ///< number of queries, up to kQueryBlock
  int64_t step;                           ///< number of lanes that products take at once
  int64_t vecs;                           ///< number of vectors that hold all lanes
  int64_t base;                           ///< position of lane 0 among the keys
  bool causal;                            ///< a lane sees no key behind its own position
  int64_t begin;                          ///< start of the first key block
  int64_t end;                            ///< one past the last key that a lane sees
  int64_t latest;                         ///< latest first key among the lanes
  int64_t reach;                          ///< earliest last key among the lanes
  alignas(64) int32_t low[kQueryBlock];   ///< first key that each lane sees
  alignas(64) int32_t high[kQueryBlock];  ///< last key that each lane sees

  QueryBlock(const AttentionShape& shape, int64_t batch, int64_t index, int64_t lanes)
      : first(index * kQueryBlock),
        count(smaller(kQueryBlock, shape.queries - first)),
        step(lanes),
        vecs(round_up(count, step) / kLanes),
        base(shape.query_offset + first),
        causal(shape.document_end == nullptr),
        begin(causal ? base : shape.keys),
        end(causal ? smaller(shape.keys, base + count) : 0),
        latest(0),
        reach(smaller(causal ? base : shape.keys, shape.keys - 1)) {
    const int64_t row = batch * shape.queries + first;
    for (int64_t i = 0; i < kQueryBlock; ++i) {
      int64_t start = 0;
      if (shape.document_start != nullptr && i < count) {
        start = shape.document_start[row + i] - shape.first_key;
      }
      if (i < count) start = larger(start, base + i + 1 - shape.window);
      low[i] = static_cast<int32_t>(start);
      if (i < count) begin = smaller(begin, start);
      latest = larger(latest, start);
      int64_t last = shape.keys - 1;
      if (causal) {
        last = smaller(base + i, last);
      } else if (i < count) {
        last = smaller(shape.document_end[row + i] - shape.first_key - 1, last);
        end = larger(end, last + 1);
        reach = smaller(reach, last);
      }
      high[i] = static_cast<int32_t>(last);
    }
    begin = larger(0, begin) / kKeyBlock * kKeyBlock;
  }
};

/// The keys [first, first + rows) for the lanes from `lane` on; earlier lanes see none of
/// these keys.
struct KeyBlock {
  int64_t first;
  int64_t rows;  ///< a multiple of Element::kSummed
  int64_t lane;  ///< a multiple of the query block's step
  bool masked;   ///< some lane does not see some key

  KeyBlock(const QueryBlock& q, int64_t key, int64_t summed)
      : first(key),
        rows(round_up(smaller(kKeyBlock, q.end - key), summed)),
        lane(q.causal ? larger(0, key - q.base) / q.step * q.step : 0),
        masked(key < q.latest || key + rows - 1 > q.reach) {}
};

/// One thread's dropout factors of a block of probabilities: 0 where a probability is
/// dropped, else the scale.
class DropoutTile {
 public:
  explicit DropoutTile(const AttentionShape& shape)
      : shape_(shape),
        philox_(shape.dropout.draws.key),
        factors_(drops() ? (kKeyBlock + 4) * kQueryBlock : 0) {}

  bool drops() const { return shape_.dropout.sequences != nullptr; }
  /// Chooses the sequence and the query head of the next draws.
  void set_head(int64_t batch, int64_t head) {
    if (!drops()) return;
    sequence_ =
        SequenceWords(shape_.dropout.sequences[batch], shape_.dropout.first_head + head);
  }
  /// Returns the factors [key][lane] for the lanes of `k`, which the next call
  /// overwrites.
  const float* draw(const QueryBlock& q, const KeyBlock& k) const {
    const Draws& draws = shape_.dropout.draws;
    const Words threshold = same_words(draws.threshold);
    const Vec scale = set1(draws.scale);
    const int64_t key = shape_.first_key + k.first;
    const int64_t skip = key % 4;  // a draw is for four keys
    for (int64_t lane = k.lane; lane < q.vecs * kLanes; lane += kLanes) {
      const auto row = static_cast<uint32_t>(shape_.first_key + q.base + lane);
      const Words rows = add_words(same_words(row), load_words(kLaneNumber));
      for (int64_t j = 0; j < skip + k.rows; j += 4) {
        Words drawn[4] = {same_words(static_cast<uint32_t>((key + j) / 4)), rows,
                          same_words(sequence_.lower), same_words(sequence_.upper)};
        philox_.draw(drawn);
        for (int64_t i = 0; i < 4; ++i) {
          store(factors_.get() + (j + i) * kQueryBlock + lane,
                where_at_least(drawn[i], threshold, scale), Full{});
        }
      }
    }
    return factors_.get() + skip * kQueryBlock;
  }

 private:
  const AttentionShape& shape_;
  Philox philox_;
  SequenceWords sequence_{0, 0};
  Scratch<float> factors_;
};

/// The packed keys and values of one (sequence, key head). Absent layouts are null.
template <typename E>
struct PackedHead {
  const E* key_rows;
  const E* key_pairs;
  const E* value_rows;
  const E* value_pairs;
};

/// For each lane, the sum over keys of weights times keys or values: the attention's
/// result, or the gradient of the queries.
template <typename E>
class LaneSums {
 public:
  explicit LaneSums(int64_t dim) : dim_(dim), rows_(kQueryBlock * dim) {}

  /// Packs a block of keys into the layout that add() reads.
  template <typename T>
  static void pack_keys(const T* x, int64_t stride, int64_t count, int64_t dim,
                        int64_t padded_dim, E* out) {
    pack_pairs(x, stride, count, kKeyBlock, dim, padded_dim, out);
  }

  void clear(int64_t lanes) const {
    memset(rows_.get(), 0, static_cast<size_t>(lanes * dim_) * sizeof(float));
  }
  /// Sets elements of one lane's sum from d on.
  template <typename Lanes>
  LH_INLINE void set(int64_t lane, int64_t d, Vec x, Lanes lanes) const {
    store(rows_.get() + lane * dim_ + d, x, lanes);
  }
  /// Returns the sums as [lane][D].
  const float* rows(int64_t /*lanes*/) const { return rows_.get(); }
  /// Adds the product of weights [key / pair][lane] and a block of keys. With ScaleAdd,
  /// the earlier sums are multiplied by factor [lane] first.
  template <Into kInto>
  void add(const QueryBlock& q, const KeyBlock& k, const E* weights, const E* keys,
           const float* factor = nullptr) const {
    small_product<kInto>(q.count - k.lane, dim_ / kLanes, k.rows / Element<E>::kPair,
                         Left<E>{weights + k.lane, 1, kQueryBlock}, keys, dim_,
                         rows_.get() + k.lane * dim_, dim_,
                         factor == nullptr ? nullptr : factor + k.lane);
  }

 private:
  int64_t dim_;
  Scratch<float> rows_;
};

/// Packs one tensor of keys or values into [batch * key_heads] heads of `rows` and
/// `pairs`; a layout whose pointer is null is left out. All threads of the parallel
/// region must call it.
template <typename E, typename T>
void pack_heads(const AttentionSizes<E>& sizes, const AttentionInput<T>& x, E* rows,
                E* pairs) {
  const AttentionShape& s = sizes.shape;
  const int64_t blocks = sizes.padded_keys / kKeyBlock;
#pragma omp for schedule(static)
  for (int64_t i = 0; i < s.batch * s.key_heads * blocks; ++i) {
    const int64_t head = i / blocks;
    const int64_t first = i % blocks * kKeyBlock;
    const int64_t count = smaller(kKeyBlock, sizes.visible - first);
    const T* from = x.data + head / s.key_heads * x.strides.batch +
                    head % s.key_heads * x.strides.head + first * x.strides.token;
    if (rows != nullptr) {
      pack_rows(from, x.strides.token, count, kKeyBlock, s.head_dim,
                rows + head * sizes.packed_rows() + first * sizes.row_width);
    }
    if (pairs != nullptr) {
      LaneSums<E>::pack_keys(from, x.strides.token, count, s.head_dim, sizes.padded_dim,
                             pairs + head * sizes.packed_pairs() +
                                 first / Element<E>::kPair * sizes.padded_dim);
    }
  }
}

template <typename Pointer>
LH_INLINE auto* rows_of(const Pointer& x, int64_t batch, int64_t token, int64_t head) {
  return x.data + batch * x.strides.batch + token * x.strides.token +
         head * x.strides.head;
}

// ---- Forward

/// The buffers of one thread for a block of queries in the forward.
template <typename E>
struct ForwardScratch {
  explicit ForwardScratch(const AttentionSizes<E>& sizes)
      : query(sizes.row_width * kQueryBlock),
        scores(kKeyBlock * kQueryBlock),
        probabilities(kKeyBlock / Element<E>::kPair * kQueryBlock),
        sum(sizes.padded_dim),
        dropout(sizes.shape) {}
  Scratch<E> query;          ///< [D / pair][lane]
  Scratch<float> scores;     ///< [key][lane]
  Scratch<E> probabilities;  ///< [key / pair][lane]
  LaneSums<E> sum;           ///< probabilities times values
  DropoutTile dropout;
  [[no_unique_address]] typename Element<E>::Unit unit;
  alignas(64) float maximum[kQueryBlock];
  alignas(64) float total[kQueryBlock];
  alignas(64) float factor[kQueryBlock];  ///< factor of the sums over earlier key blocks
};

/// Returns the largest of `rows` scores of each lane. Several chains of comparisons run
/// side by side: in one chain each comparison would wait for the comparison before it.
LH_INLINE Vec most_of(int64_t rows, const float* scores) {
  constexpr int64_t kChains = 4;
  Vec most[kChains];
  for (int64_t i = 0; i < kChains; ++i) most[i] = set1(kHidden);
  int64_t j = 0;
  for (; j + kChains <= rows; j += kChains) {
    for (int64_t i = 0; i < kChains; ++i)
      most[i] = max(most[i], load(scores + (j + i) * kQueryBlock, Full{}));
  }
  for (; j < rows; ++j) most[0] = max(most[0], load(scores + j * kQueryBlock, Full{}));
  return max(max(most[0], most[1]), max(most[2], most[3]));
}

/// Replaces scores by probabilities relative to the running maximum, some of which are
/// dropped. Updates maximum, total and factor as if no probability was dropped.
template <bool kDrops, typename E>
void running_softmax(const QueryBlock& q, const KeyBlock& k, float scale,
                     ForwardScratch<E>& w) {
  constexpr int64_t kPair = Element<E>::kPair;
  const float* kept = nullptr;
  if constexpr (kDrops) kept = w.dropout.draw(q, k);
  const Vec c = set1(scale * kLog2E);
  for (int64_t lane = k.lane; lane < q.vecs * kLanes; lane += kLanes) {
    float* scores = w.scores.get() + lane;
    const Vec before = load(w.maximum + lane, Full{});
    if (k.masked) {
      for (int64_t j = 0; j < k.rows; ++j) {
        float* at = scores + j * kQueryBlock;
        store(at,
              select_between(static_cast<int32_t>(k.first + j), q.low + lane,
                             q.high + lane, load(at, Full{}), set1(kHidden)),
              Full{});
      }
    }
    const Vec most = max(before, most_of(k.rows, scores));
    Vec total = zero();
    for (int64_t j = 0; j < k.rows; j += kPair) {
      Vec p[kPair];
      for (int64_t i = 0; i < kPair; ++i) {
        const Vec s = load(scores + (j + i) * kQueryBlock, Full{});
        p[i] = exp2(mul(sub(s, most), c));
        total = add(total, p[i]);
        if constexpr (kDrops) {
          p[i] = mul(p[i], load(kept + (j + i) * kQueryBlock + lane, Full{}));
        }
      }
      E* to = w.probabilities.get() + j / kPair * kQueryBlock + lane;
      put_probabilities(p, to, static_cast<E*>(nullptr), 0);
    }
    const Vec factor = exp2(mul(sub(before, most), c));
    store(w.maximum + lane, most, Full{});
    store(w.factor + lane, factor, Full{});
    store(w.total + lane, fma(load(w.total + lane, Full{}), factor, total), Full{});
  }
}

/// Sets the running softmax (sum, maximum and total of each lane) before the first key.
/// With GoOn, a lane that has seen keys in earlier parts begins with its `out` as the
/// sum, lse / scale as the maximum, and 1 as the total.
template <Results kResults, typename E, typename O>
void begin_softmax(const AttentionSizes<E>& sizes, const QueryBlock& q, const O* out,
                   int64_t out_stride, const float* lse, ForwardScratch<E>& w) {
  w.sum.clear(q.count);
  for (int64_t i = 0; i < kQueryBlock; ++i) {
    w.maximum[i] = kHidden;
    w.total[i] = 0.0F;
    if constexpr (kResults == Results::GoOn) {
      if (i >= q.count || lse[i] == -__builtin_inff()) continue;
      w.maximum[i] = lse[i] / sizes.shape.scale;
      w.total[i] = 1.0F;
      for_lanes(sizes.shape.head_dim, [&](int64_t d, auto lanes) {
        w.sum.set(i, d, load(out + i * out_stride + d, lanes), lanes);
      });
    }
  }
}

/// Writes `out` and `lse` from the running softmax: 0 and minus infinity for a query that
/// has seen no key.
template <typename E, typename O>
void end_softmax(const AttentionSizes<E>& sizes, const QueryBlock& q,
                 const ForwardScratch<E>& w, O* out, int64_t out_stride, float* lse) {
  const float* sum = w.sum.rows(q.count);
  alignas(64) float log_total[kQueryBlock];
  for (int64_t lane = 0; lane < kQueryBlock; lane += kLanes)
    store(log_total + lane, log(load(w.total + lane, Full{})), Full{});
  for (int64_t i = 0; i < q.count; ++i) {
    const bool none = w.maximum[i] <= kHidden;
    const Vec inverse = set1(none ? 0.0F : 1.0F / w.total[i]);
    for_lanes(sizes.shape.head_dim, [&](int64_t d, auto lanes) {
      store(out + i * out_stride + d,
            mul(load(sum + i * sizes.padded_dim + d, lanes), inverse), lanes);
    });
    lse[i] = none ? -__builtin_inff() : w.maximum[i] * sizes.shape.scale + log_total[i];
  }
}

template <Results kResults, typename E, typename T, typename O>
void attention_forward_block(const AttentionSizes<E>& sizes, const QueryBlock& q,
                             const PackedHead<E>& head, const T* query,
                             int64_t query_stride, O* out, int64_t out_stride, float* lse,
                             ForwardScratch<E>& w) {
  if (kResults == Results::GoOn && q.begin >= q.end) return;
  pack_columns(query, query_stride, q.count, q.vecs * kLanes, sizes.shape.head_dim,
               kQueryBlock, w.query.get());
  begin_softmax<kResults>(sizes, q, out, out_stride, lse, w);
  for (int64_t key = q.begin; key < q.end; key += kKeyBlock) {
    const KeyBlock k(q, key, Element<E>::kSummed);
    small_product<Into::Overwrite>(
        k.rows, q.vecs - k.lane / kLanes, sizes.row_width,
        Left<E>{head.key_rows + key * sizes.row_width, sizes.row_width, 1},
        w.query.get() + k.lane, kQueryBlock, w.scores.get() + k.lane, kQueryBlock);
    if (w.dropout.drops()) {
      running_softmax<true>(q, k, sizes.shape.scale, w);
    } else {
      running_softmax<false>(q, k, sizes.shape.scale, w);
    }
    w.sum.template add<Into::ScaleAdd>(
        q, k, w.probabilities.get(),
        head.value_pairs + key / Element<E>::kPair * sizes.padded_dim, w.factor);
  }
  end_softmax(sizes, q, w, out, out_stride, lse);
}

template <typename E, typename T, Results kResults>
void attention_forward_loop(const AttentionForward<T, kResults>& a) {
  const AttentionShape& s = a.shape;
  const AttentionSizes<E> sizes(s);
  const int64_t key_heads = s.batch * s.key_heads;
  const Scratch<E> key_rows(key_heads * sizes.packed_rows());
  const Scratch<E> value_pairs(key_heads * sizes.packed_pairs());
  const int64_t heads = s.batch * s.query_heads;
#pragma omp parallel
  {
    pack_heads(sizes, a.k, key_rows.get(), static_cast<E*>(nullptr));
    pack_heads(sizes, a.v, static_cast<E*>(nullptr), value_pairs.get());
    ForwardScratch<E> scratch(sizes);
    // The longest blocks come first; no two items share a result, so their order is free.
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < heads * sizes.query_blocks; ++i) {
      const int64_t batch = i % heads / s.query_heads;
      const int64_t head = i % heads % s.query_heads;
      const int64_t key_head = batch * s.key_heads + head / sizes.group;
      const QueryBlock block(s, batch, sizes.query_blocks - 1 - i / heads,
                             Element<E>::kColumns);
      scratch.dropout.set_head(batch, head);
      const PackedHead<E> packed{key_rows.get() + key_head * sizes.packed_rows(), nullptr,
                                 nullptr,
                                 value_pairs.get() + key_head * sizes.packed_pairs()};
      attention_forward_block<kResults>(
          sizes, block, packed, rows_of(a.q, batch, block.first, head), a.q.strides.token,
          rows_of(a.out, batch, block.first, head), a.out.strides.token,
          a.lse + (batch * s.query_heads + head) * s.queries + block.first, scratch);
    }
  }
}

}  // namespace
}  // namespace longhaul::kernels
