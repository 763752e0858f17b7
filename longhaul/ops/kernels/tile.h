#pragma once

#include "longhaul/ops/kernels/simd.h"

// This header multiplies small matrices by tiles of sums that stay in registers: C[m][n]
// = sum over k of A[m][k] B[k][n]. An operand element is a float or a Pair. A Pair holds
// two neighbours of the summed dim in bf16, which one instruction multiplies and adds.
// Vectors run along n; elements of A are broadcast, so A may have any strides.

namespace longhaul::kernels {
namespace {

/// The Element::Unit of elements for which a thread needs no state while it multiplies.
struct NoUnit {};

/// How products load and multiply elements of type E.
template <typename E>
struct Element;

template <>
struct Element<float> {
  /// How many neighbouring values along the summed dim one element holds.
  static constexpr int64_t kPair = 1;
  /// Products take multiples of kSummed values of the summed dim and of kColumns columns.
  static constexpr int64_t kSummed = kPair;
  static constexpr int64_t kColumns = kLanes;
  using Unit = NoUnit;
  static LH_INLINE Vec broadcast(const float* p) { return set1(*p); }
  static LH_INLINE Vec vector(const float* p) { return load(p, Full{}); }
  static LH_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return fma(a, b, c); }
  /// Returns the element that holds the neighbours x0 and x1; a float holds x0 alone.
  static LH_INLINE float make(float x0, float /*x1*/) { return x0; }
};

#if defined(__AVX512BF16__)
struct Pair {
  uint32_t bits;
};

template <>
struct Element<Pair> {
  static constexpr int64_t kPair = 2;
  static constexpr int64_t kSummed = kPair;
  static constexpr int64_t kColumns = kLanes;
  using Unit = NoUnit;
  static LH_INLINE __m512i broadcast(const Pair* p) {
    return _mm512_set1_epi32(static_cast<int>(p->bits));
  }
  static LH_INLINE __m512i vector(const Pair* p) { return _mm512_loadu_si512(p); }
  static LH_INLINE Vec multiply_add(__m512i a, __m512i b, Vec c) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a),
                            reinterpret_cast<__m512bh>(b));
  }
  static LH_INLINE Pair make(Bf16 x0, Bf16 x1) {
    return {x0.bits | (static_cast<uint32_t>(x1.bits) << 16)};
  }
};
#endif

/// How the sums of a tile are written from the registers to the result C.
enum class Into {
  Overwrite,  ///< C = tile
  Add,        ///< C += tile
  ScaleAdd,   ///< C = C * factor[m] + tile
};

/// A strided left operand with element (m, k) at data[m * row + k * column].
template <typename E>
struct Left {
  const E* data;
  int64_t row;
  int64_t column;
};

template <Into kInto, int kRows, int kVecs, typename E>
LH_INLINE void tile(Left<E> a, const E* b, int64_t b_stride, int64_t depth, float* c,
                    int64_t c_stride, const float* factor) {
  Vec sum[kRows][kVecs];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < kVecs; ++n) sum[m][n] = zero();
  }
  for (int64_t k = 0; k < depth; ++k) {
    decltype(Element<E>::vector(b)) right[kVecs];
#pragma GCC unroll 8
    for (int n = 0; n < kVecs; ++n) right[n] = Element<E>::vector(b + n * kLanes);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const auto left = Element<E>::broadcast(a.data + m * a.row);
#pragma GCC unroll 8
      for (int n = 0; n < kVecs; ++n) {
        sum[m][n] = Element<E>::multiply_add(left, right[n], sum[m][n]);
      }
    }
    a.data += a.column;
    b += b_stride;
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < kVecs; ++n) {
      float* to = c + m * c_stride + n * kLanes;
      Vec y = sum[m][n];
      if constexpr (kInto == Into::Add) y = add(load(to, Full{}), y);
      if constexpr (kInto == Into::ScaleAdd)
        y = fma(load(to, Full{}), set1(factor[m]), y);
      store(to, y, Full{});
    }
  }
}

/// The rows and vectors of a tile, which fill the registers.
constexpr int kTileRows = 6;
constexpr int kTileVecs = kVectorRegisters == 32 ? 4 : 2;

template <Into kInto, int kVecs, typename E>
void tile_rows(int64_t rows, Left<E> a, const E* b, int64_t b_stride, int64_t depth,
               float* c, int64_t c_stride, const float* factor) {
  switch (rows) {
    case 1:
      return tile<kInto, 1, kVecs>(a, b, b_stride, depth, c, c_stride, factor);
    case 2:
      return tile<kInto, 2, kVecs>(a, b, b_stride, depth, c, c_stride, factor);
    case 3:
      return tile<kInto, 3, kVecs>(a, b, b_stride, depth, c, c_stride, factor);
    case 4:
      return tile<kInto, 4, kVecs>(a, b, b_stride, depth, c, c_stride, factor);
    case 5:
      return tile<kInto, 5, kVecs>(a, b, b_stride, depth, c, c_stride, factor);
    default:
      return tile<kInto, 6, kVecs>(a, b, b_stride, depth, c, c_stride, factor);
  }
}

template <Into kInto, int kVecs, typename E>
void tile_columns(int64_t rows, Left<E> a, const E* b, int64_t b_stride, int64_t depth,
                  float* c, int64_t c_stride, const float* factor) {
  for (int64_t m = 0; m < rows;) {
    // A short tile at the end is avoided, so that 8 rows are cut into 4 and 4, not 6 and
    // 2.
    const int64_t left = rows - m;
    const int64_t n = left > kTileRows && left < 2 * kTileRows ? (left + 1) / 2
                                                               : smaller(left, kTileRows);
    const float* row_factor = factor == nullptr ? nullptr : factor + m;
    tile_rows<kInto, kVecs>(n, {a.data + m * a.row, a.row, a.column}, b, b_stride, depth,
                            c + m * c_stride, c_stride, row_factor);
    m += n;
  }
}

/// Multiplies A [rows, depth] by B [depth, vecs * kLanes]; the product goes to C [rows,
/// vecs * kLanes] as kInto says. `depth` counts elements. Each value of the product is
/// summed in ascending k, however the product is cut into tiles.
template <Into kInto, typename E>
void small_product(int64_t rows, int64_t vecs, int64_t depth, Left<E> a, const E* b,
                   int64_t b_stride, float* c, int64_t c_stride,
                   const float* factor = nullptr) {
  for (int64_t n = 0; n < vecs; n += kTileVecs) {
    const E* bn = b + n * kLanes;
    float* cn = c + n * kLanes;
    switch (smaller(kTileVecs, vecs - n)) {
      case 1:
        tile_columns<kInto, 1>(rows, a, bn, b_stride, depth, cn, c_stride, factor);
        break;
      case 2:
        tile_columns<kInto, 2>(rows, a, bn, b_stride, depth, cn, c_stride, factor);
        break;
#if defined(__AVX512F__)
      case 3:
        tile_columns<kInto, 3>(rows, a, bn, b_stride, depth, cn, c_stride, factor);
        break;
      default:
        tile_columns<kInto, 4>(rows, a, bn, b_stride, depth, cn, c_stride, factor);
#else
      default:
        break;
#endif
    }
  }
}

}  // namespace
}  // namespace longhaul::kernels
