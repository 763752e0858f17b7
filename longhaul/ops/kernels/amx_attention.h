#pragma once

#include "longhaul/ops/kernels/amx.h"
#include "longhaul/ops/kernels/attention_loops.h"

// The attention's layouts for AMX tiles are those of attention_pack.h, padded to whole
// blocks. Tiles read a left factor as rows of pairs. Probabilities have this layout only
// where the sum runs over queries. Sums over keys are therefore formed transposed,
// [D][lane]: probabilities are then the right factor, and keys and values are packed
// transposed, once for all queries.

namespace longhaul::kernels {
namespace {

LH_INLINE uint32_t* words(TilePair* x) { return reinterpret_cast<uint32_t*>(x); }

inline void pack_rows(const Bf16* x, int64_t stride, int64_t count, int64_t padded,
                      int64_t dim, TilePair* out) {
  const int64_t width = round_up(dim, kTileBlock) / 2;
  for (int64_t j = 0; j < padded; j += kTileBlock) {
    for (int64_t d = 0; d < dim; d += kTileBlock) {
      put_rows(SourceBlock(x + j * stride + d, stride, count - j, dim - d),
               words(out) + j * width + d / 2, width);
    }
  }
}

inline void pack_pairs(const Bf16* x, int64_t stride, int64_t count, int64_t padded,
                       int64_t dim, int64_t padded_dim, TilePair* out) {
  for (int64_t j = 0; j < padded; j += kTileBlock) {
    for (int64_t d = 0; d < dim; d += kTileBlock) {
      put_pairs(SourceBlock(x + j * stride + d, stride, count - j, dim - d),
                words(out) + j / 2 * padded_dim + d, padded_dim, kRegisterWords);
    }
  }
}

inline void pack_columns(const Bf16* x, int64_t stride, int64_t count, int64_t padded,
                         int64_t dim, int64_t out_stride, TilePair* out) {
  for (int64_t q = 0; q < padded; q += kTileBlock) {
    for (int64_t d = 0; d < dim; d += kTileBlock) {
      put_turned_pairs(SourceBlock(x + q * stride + d, stride, count - q, dim - d),
                       words(out) + d / 2 * out_stride + q, out_stride, kRegisterWords);
    }
  }
}

template <>
class LaneSums<TilePair> {
 public:
  explicit LaneSums(int64_t dim)
      : dim_(dim), turned_(dim * kQueryBlock), rows_(kQueryBlock * dim) {}

  /// Packs a block of keys transposed, [D][kKeyBlock / 2]: an element holds two
  /// neighbouring keys.
  static void pack_keys(const Bf16* x, int64_t stride, int64_t count, int64_t dim,
                        int64_t /*padded_dim*/, TilePair* out) {
    for (int64_t d = 0; d < dim; d += kTileBlock) {
      for (int64_t j = 0; j < kKeyBlock; j += kTileBlock) {
        put_columns(SourceBlock(x + j * stride + d, stride, count - j, dim - d),
                    words(out) + d * kKeyWords + j / 2, kKeyWords);
      }
    }
  }

  void clear(int64_t /*lanes*/) const {
    memset(turned_.get(), 0, static_cast<size_t>(dim_ * kQueryBlock) * sizeof(float));
  }
  template <typename Lanes>
  LH_INLINE void set(int64_t lane, int64_t d, Vec x, Lanes lanes) const {
    alignas(64) float values[kLanes];
    store(values, x, Full{});
    int64_t count = kLanes;
    if constexpr (requires { lanes.count; }) count = lanes.count;
    for (int64_t i = 0; i < count; ++i)
      turned_.get()[(d + i) * kQueryBlock + lane] = values[i];
  }
  const float* rows(int64_t lanes) const {
    constexpr int64_t kFloat = sizeof(float);
    for (int64_t lane = 0; lane < lanes; lane += kLanes) {
      for (int64_t d = 0; d < dim_; d += kLanes) {
        turn_words(turned_.get() + d * kQueryBlock + lane, kQueryBlock * kFloat,
                   reinterpret_cast<uint32_t*>(rows_.get() + lane * dim_ + d), dim_);
      }
    }
    return rows_.get();
  }
  template <Into kInto>
  void add(const QueryBlock& q, const KeyBlock& k, const TilePair* weights,
           const TilePair* keys, const float* factor = nullptr) const {
    if constexpr (kInto == Into::ScaleAdd) scale(q, k, factor);
    small_product<Into::Add>(dim_, q.vecs - k.lane / kLanes, k.rows / 2,
                             Left<TilePair>{keys, kKeyWords, 1}, weights + k.lane,
                             kQueryBlock, turned_.get() + k.lane, kQueryBlock);
  }

 private:
  static constexpr int64_t kKeyWords = kKeyBlock / 2;

  void scale(const QueryBlock& q, const KeyBlock& k, const float* factor) const {
    for (int64_t lane = k.lane; lane < q.vecs * kLanes; lane += kLanes) {
      const Vec by = load(factor + lane, Full{});
      // All factors are 1 as long as no maximum grows.
      if (_mm512_cmp_ps_mask(by, set1(1.0F), _CMP_NEQ_UQ) == 0) continue;
      for (int64_t d = 0; d < dim_; ++d) {
        float* at = turned_.get() + d * kQueryBlock + lane;
        store(at, mul(load(at, Full{}), by), Full{});
      }
    }
  }

  int64_t dim_;
  Scratch<float> turned_;  ///< [D][lane]
  Scratch<float> rows_;    ///< [lane][D]
};

}  // namespace
}  // namespace longhaul::kernels
