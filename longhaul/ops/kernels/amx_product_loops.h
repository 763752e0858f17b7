#pragma once

#include <omp.h>

#include "longhaul/ops/kernels/amx.h"
#include "longhaul/ops/kernels/product_put.h"

// This loop computes the product a b of bf16, summed in fp32 by AMX tiles. A thread packs
// a block of one factor (the packed factor), which then stays in its core's L2. Strips of
// 32 rows of the other factor (the passing factor) are multiplied with the block one
// after another. A strip is packed into L1, a panel of the summed dim at a time, so that
// a product reads only the block from L2. Shapes: M rows, K summed, N columns.

namespace longhaul::kernels {
namespace {

/// Elements that are summed before the sums leave the registers: 16 KB of a strip stay in
/// L1 while 16 KB of the block pass.
constexpr int64_t kPanelDepth = 256;
constexpr int64_t kChunkDepth = 2048;  ///< summed elements of the block in L2
/// With fewer rows in the block, strips would be needed faster than memory delivers them.
constexpr int64_t kLeastRows = 128;
constexpr int64_t kMostRows = 512;
/// The largest number of strips whose sums wait in memory, if the summed dim takes
/// several chunks.
constexpr int64_t kMostStrips = 64;

constexpr int64_t kRegister = kRegisterRows * kRegisterWords;
constexpr int64_t kStepWords = 2 * kRegister;  ///< words of 32 x 32 values
constexpr int64_t kBlockSums = kTileBlock * kTileBlock;
constexpr int64_t kElement = sizeof(Bf16);
constexpr int64_t kWordBytes = 4;
constexpr int64_t kRowBytes = kRegisterWords * kWordBytes;
constexpr int64_t kLineBytes = 64;

enum class Side { Left, Right };

constexpr int64_t kPackGroup = 8;

/// Packs up to kPackGroup strips of 32 rows as [strip][k / 32][32 x 32], with strips
/// `strip_words` apart. The rows of a right factor are columns of b.
template <Side kSide>
void pack_strips(MatrixInput x, int64_t count, int64_t depth, uint32_t* out,
                 int64_t strip_words) {
  const int64_t strips = ceil_div(count, kTileBlock);
  const int64_t steps = ceil_div(depth, kTileBlock);
  const bool by_rows = x.column == 1;
  for (int64_t i = 0; i < strips * steps; ++i) {
    // The loop follows the order of the matrix in memory.
    const int64_t strip = (by_rows ? i / steps : i % strips) * kTileBlock;
    const int64_t k = (by_rows ? i % steps : i / strips) * kTileBlock;
    const MatrixInput at = from(x, strip, k);
    uint32_t* to = out + strip / kTileBlock * strip_words + k / kTileBlock * kStepWords;
    if (by_rows) {
      const SourceBlock block(at.data, at.row, count - strip, depth - k);
      if constexpr (kSide == Side::Left) put_rows(block, to, kRegisterWords);
      if constexpr (kSide == Side::Right)
        put_turned_pairs(block, to, kRegisterWords, kRegister);
    } else {
      // Without this prefetch, rows that lie far apart would arrive too late.
      for (int64_t r = 0; r < kTileBlock; ++r)
        __builtin_prefetch(at.data + (kTileBlock + r) * at.column);
      const SourceBlock block(at.data, at.column, depth - k, count - strip);
      if constexpr (kSide == Side::Left) put_columns(block, to, kRegisterWords);
      if constexpr (kSide == Side::Right) put_pairs(block, to, kRegisterWords, kRegister);
    }
  }
}

LH_INLINE BlockFactor packed_factor(const uint32_t* data) {
  return {data, kRowBytes, kRegister * kWordBytes, kStepWords * kWordBytes};
}

/// Cache lines of a matrix that ask() prefetches a few at a time: all prefetches at once
/// would hold up the loads.
class Lines {
 public:
  Lines() = default;
  /// Takes share `index` of `shares` of the cache lines of rows that are `stride` bytes
  /// apart.
  Lines(const void* x, int64_t stride, int64_t rows, int64_t row_bytes, int64_t index = 0,
        int64_t shares = 1)
      : stride_(stride), per_row_(ceil_div(row_bytes, kLineBytes)) {
    const int64_t all = rows * per_row_;
    const int64_t first = all * index / shares;
    left_ = all * (index + 1) / shares - first;
    row_ = static_cast<const char*>(x) + first / per_row_ * stride;
    in_row_ = first % per_row_;
  }
  int64_t left() const { return left_; }

  /// Prefetches the next `count` lines, or all that are left, with the arguments of
  /// __builtin_prefetch.
  template <int kWrite, int kLocality>
  LH_INLINE void ask(int64_t count) {
    count = smaller(count, left_);
    left_ -= count;
    for (; count > 0; --count) {
      __builtin_prefetch(row_ + in_row_ * kLineBytes, kWrite, kLocality);
      if (++in_row_ < per_row_) continue;
      in_row_ = 0;
      row_ += stride_;
    }
  }

 private:
  const char* row_ = nullptr;
  int64_t stride_ = 0, per_row_ = 1, in_row_ = 0, left_ = 0;
};

/// The buffers of one thread.
struct TileBuffers {
  TileBuffers(int64_t rows, int64_t depth, int64_t strips)
      : block(rows * depth / 2),
        panel(kTileBlock * kPanelDepth / 2),
        sums(strips * rows * kTileBlock) {}
  Scratch<uint32_t> block, panel;
  Scratch<float> sums;  ///< [strip][block][4 registers]
};

/// Rounds 32 finished sums of row m, from column n on, to bf16 and writes the 32 values
/// with one instruction. Two writes of 16 values make a product that sums 768 elements
/// 5 % slower. Denormal values become 0, as they do in AMX tiles.
LH_INLINE void round_sums(const Product& p, const float* sums, int64_t m, int64_t n) {
  Vec first = load(sums, Full{});
  Vec second = load(sums + kRegister, Full{});
  if (p.bias != nullptr) {
    first = add(first, load(p.bias + n, Full{}));
    second = add(second, load(p.bias + n + kLanes, Full{}));
  }
  _mm512_storeu_si512(p.y + m * p.stride + n,
                      reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
}

/// Writes a block of finished sums, the first of which is (m, n) of the result.
inline void put_block(const Product& p, const float* sums, int64_t m, int64_t n) {
  const int64_t columns = smaller(kTileBlock, p.N - n);
  const bool at_once = columns == kTileBlock && p.y != nullptr && !p.add;
  for (int64_t i = 0; i < smaller(kTileBlock, p.M - m); ++i) {
    const float* x =
        sums + i / kRegisterRows * 2 * kRegister + i % kRegisterRows * kRegisterWords;
    if (at_once) {
      round_sums(p, x, m + i, n);
      continue;
    }
    for_lanes(columns, [&](int64_t j, auto lanes) {
      put_lanes(p, m + i, n + j, load(x + j / kLanes * kRegister, Full{}), lanes);
    });
  }
}

/// Writes a block of finished sums to the transpose of the result: the sum (m, n) goes to
/// row n of y.
inline void put_turned_block(const Product& p, const float* sums, int64_t m, int64_t n) {
  const __m512i alternate = _mm512_load_si512(kTurnIndex.lower);
  const int64_t columns = smaller(kTileBlock, p.M - m);
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t first = n + half * kRegisterRows;
    const int64_t rows = smaller(kRegisterRows, p.N - first);
    alignas(64) uint32_t pairs[kRegister];  // pairs of neighbours in m, [m / 2][n]
    for (int64_t i = 0; i < kRegisterRows; ++i) {
      const float* x =
          sums + half * kRegister + i / 8 * 2 * kRegister + i % 8 * 2 * kRegisterWords;
      const auto rounded = [](const float* at) {
        return _mm512_castsi256_si512(
            reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(load(at, Full{}))));
      };
      _mm512_store_si512(
          pairs + i * kRegisterWords,
          _mm512_permutex2var_epi16(rounded(x), alternate, rounded(x + kRegisterWords)));
    }
    Bf16* to = p.y + first * p.stride + m;
    if (columns == kTileBlock && rows == kRegisterRows && p.stride % 2 == 0) {
      turn_words(pairs, kRowBytes, reinterpret_cast<uint32_t*>(to), p.stride / 2);
      continue;
    }
    alignas(64) uint32_t turned[kRegister];
    turn_words(pairs, kRowBytes, turned, kRegisterWords);
    for (int64_t i = 0; i < rows; ++i) {
      memcpy(to + i * p.stride, turned + i * kRegisterWords,
             static_cast<size_t>(columns * kElement));
    }
  }
}

/// A product whose blocks of the factor kPacked stay in L2 while the other factor passes;
/// tile_product_loop() runs it in every thread. Both factors are read as rows along the
/// summed dim. If rows of the passing factor are not contiguous, all threads pack it
/// beforehand: strip by strip it would be read across its memory for every block. With
/// kTurned, y is the transpose of the product.
template <Side kPacked, bool kTurned = false>
class TileProduct {
 public:
  explicit TileProduct(const Product& p)
      : p_(p),
        packed_(kLeft ? p.a : turned(p.b)),
        passing_(kLeft ? turned(p.b) : p.a),
        packed_rows_(kLeft ? p.M : p.N),
        passing_rows_(kLeft ? p.N : p.M),
        deepest_(round_up(smaller(p.K, kChunkDepth), kTileBlock)),
        strips_(ceil_div(passing_rows_, kTileBlock)),
        strip_words_(ceil_div(p.K, kTileBlock) * kStepWords),
        beforehand_(passing_.column != 1),
        strips_data_(beforehand_ ? strips_ * strip_words_ : 0) {}

  /// Computes the calling thread's share of the product. Every thread of the enclosing
  /// parallel region must call it.
  void run() const {
    if (beforehand_) pack_strips_together();
    const TileUnit unit;
    const int64_t threads = omp_get_num_threads();
    const int64_t thread = omp_get_thread_num();
    const int64_t height = block_height(threads);
    const int64_t waiting = sums_wait() ? smaller(strips_, kMostStrips) : 1;
    const TileBuffers buffers(height, deepest_, waiting);
    // A unit of work is one strip with one block; a thread takes neighbouring units.
    const int64_t units = ceil_div(packed_rows_, height) * strips_;
    const int64_t end = units * (thread + 1) / threads;
    for (int64_t next = units * thread / threads; next < end;) {
      const int64_t first = next % strips_;
      int64_t count = smaller(end - next, strips_ - first);
      if (sums_wait()) count = smaller(count, waiting);
      multiply(next / strips_ * height, height, first, count, buffers);
      next += count;
    }
    fence_past();
  }

 private:
  static constexpr bool kLeft = kPacked == Side::Left;
  static constexpr Side kPassing = kLeft ? Side::Right : Side::Left;

  /// A block of the packed factor.
  struct Chunk {
    int64_t row, rows, k, depth;
  };
  /// A panel of a strip of the passing factor.
  struct Panel {
    int64_t row = 0, k = 0, depth = 0;
  };

  static MatrixInput turned(MatrixInput x) { return {x.data, x.column, x.row}; }

  /// Returns whether sums wait in memory for the next chunk, rather than go to the result
  /// strip by strip.
  bool sums_wait() const { return p_.K > kChunkDepth; }

  void pack_strips_together() const {
    constexpr int64_t kGroupRows = kPackGroup * kTileBlock;
    const int64_t panels = ceil_div(p_.K, kPanelDepth);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < ceil_div(passing_rows_, kGroupRows) * panels; ++i) {
      const int64_t row = i / panels * kGroupRows;
      const int64_t k = i % panels * kPanelDepth;
      pack_strips<kPassing>(
          from(passing_, row, k), smaller(kGroupRows, passing_rows_ - row),
          smaller(kPanelDepth, p_.K - k), packed_strip(row, k), strip_words_);
    }
  }

  uint32_t* packed_strip(int64_t row, int64_t k) const {
    return strips_data_.get() + row / kTileBlock * strip_words_ +
           k / kTileBlock * kStepWords;
  }

  /// Returns the rows of a block. There are as many blocks as threads if each block then
  /// has kLeastRows, and more if the caches need smaller blocks. All blocks have one
  /// size.
  int64_t block_height(int64_t threads) const {
    const int64_t most =
        smaller(kMostRows, larger(kLeastRows, p_.cache_bytes / 2 / kElement / deepest_));
    const int64_t blocks = larger(ceil_div(packed_rows_, most),
                                  smaller(threads, ceil_div(packed_rows_, kLeastRows)));
    return round_up(ceil_div(packed_rows_, blocks), kTileBlock);
  }

  void multiply(int64_t row, int64_t height, int64_t first, int64_t strips,
                const TileBuffers& buffers) const {
    const int64_t rows = smaller(height, packed_rows_ - row);
    for (int64_t k = 0; k < p_.K; k += kChunkDepth) {
      const int64_t depth = smaller(kChunkDepth, p_.K - k);
      const int64_t words = ceil_div(depth, kTileBlock) * kStepWords;
      for (int64_t i = 0; i < rows; i += kPackGroup * kTileBlock) {
        pack_strips<kPacked>(from(packed_, row + i, k),
                             smaller(kPackGroup * kTileBlock, rows - i), depth,
                             buffers.block.get() + i / kTileBlock * words, words);
      }
      const int64_t panels = ceil_div(depth, kPanelDepth);
      const auto panel = [&](int64_t i) {
        if (i >= strips * panels) return Panel{};
        const int64_t at = k + i % panels * kPanelDepth;
        return Panel{(first + i / panels) * kTileBlock, at,
                     smaller(kPanelDepth, k + depth - at)};
      };
      for (int64_t i = 0; i < strips * panels; ++i) {
        const int64_t slot = sums_wait() ? i / panels : 0;
        float* sums = buffers.sums.get() + slot * height * kTileBlock;
        multiply_panel({row, rows, k, depth}, panel(i), panel(i + 1), buffers, sums);
      }
    }
  }

  void multiply_panel(const Chunk& chunk, Panel panel, Panel next,
                      const TileBuffers& buffers, float* sums) const {
    if (!beforehand_) {
      pack_strips<kPassing>(from(passing_, panel.row, panel.k),
                            smaller(kTileBlock, passing_rows_ - panel.row), panel.depth,
                            buffers.panel.get(), 0);
    }
    const BlockFactor other = packed_factor(beforehand_ ? packed_strip(panel.row, panel.k)
                                                        : buffers.panel.get());
    const int64_t blocks = ceil_div(chunk.rows, kTileBlock);
    const int64_t words = ceil_div(chunk.depth, kTileBlock) * kStepWords;
    const int64_t steps = ceil_div(panel.depth, kTileBlock);
    Lines source = lines_of(next);
    const int64_t source_share = ceil_div(source.left(), blocks * steps);
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t row = chunk.row + i * kTileBlock;
      Lines result = result_lines(row, panel.row, panel.k / kPanelDepth);
      const int64_t result_share = ceil_div(result.left(), steps);
      const auto ahead = [&](int64_t) {
        source.ask<0, 2>(source_share);
        result.ask<1, 3>(result_share);
      };
      const BlockFactor mine =
          packed_factor(buffers.block.get() + i * words +
                        (panel.k - chunk.k) / kTileBlock * kStepWords);
      const BlockSums to{sums + i * kBlockSums, kRowBytes, kRegister * kWordBytes,
                         2 * kRegister * kWordBytes};
      if (panel.k == 0) {
        multiply_block<Into::Overwrite>(steps, kLeft ? mine : other, kLeft ? other : mine,
                                        to, ahead);
      } else {
        multiply_block<Into::Add>(steps, kLeft ? mine : other, kLeft ? other : mine, to,
                                  ahead);
      }
      if (panel.k + panel.depth == p_.K) {
        constexpr auto kPut = kTurned ? put_turned_block : put_block;
        kPut(p_, sums + i * kBlockSums, kLeft ? row : panel.row, kLeft ? panel.row : row);
      }
    }
  }

  /// Returns the cache lines that a panel is read from.
  Lines lines_of(Panel panel) const {
    if (panel.depth == 0) return {};
    const MatrixInput x = from(passing_, panel.row, panel.k);
    const int64_t bytes = panel.depth * kElement;
    return beforehand_ ? Lines(packed_strip(panel.row, panel.k), 0, 1, kTileBlock * bytes)
                       : Lines(x.data, x.row * kElement, kTileBlock, bytes);
  }

  /// Returns the share of the result's cache lines that is prefetched while the product
  /// takes panel number `panel`.
  Lines result_lines(int64_t packed_row, int64_t passing_row, int64_t panel) const {
    if (p_.wide != nullptr && !p_.add) return {};
    const int64_t at = kLeft || kTurned ? packed_row * p_.stride + passing_row
                                        : passing_row * p_.stride + packed_row;
    const bool wide = p_.wide != nullptr;
    const int64_t element = wide ? sizeof(float) : sizeof(Bf16);
    const void* x = wide ? static_cast<const void*>(p_.wide + at) : p_.y + at;
    return {x,     p_.stride * element,        kTileBlock, kTileBlock * element,
            panel, ceil_div(p_.K, kPanelDepth)};
  }

  const Product& p_;
  MatrixInput packed_, passing_;
  int64_t packed_rows_, passing_rows_;
  int64_t deepest_;  ///< largest depth of a chunk
  int64_t strips_, strip_words_;
  bool beforehand_;
  Scratch<uint32_t> strips_data_;  ///< [strip][k / 32][32 x 32], where packed beforehand
};

/// Returns whether a product is computed as its transpose. The weight of a layer is a
/// transposed right factor, which takes long to pack. In the transposed product the
/// weight is a plain left factor and becomes the passing factor. The results take longer
/// to write, so that there must be few.
LH_INLINE bool is_turned(const Product& p) {
  return p.a.column == 1 && p.b.row == 1 && 4 * p.M <= p.K && p.y != nullptr && !p.add &&
         p.bias == nullptr;
}

/// Computes a product by tiles. Each sum is formed in ascending k, in registers within a
/// panel, however many threads there are. A transposed left factor takes longer to pack
/// than any other factor, and is therefore the packed factor if much is summed. If
/// little is summed, writing the result takes longest. The right factor is packed then,
/// so that the result is written by rows.
inline void tile_product_loop(const Product& p) {
  const auto run = [](const auto& product) {
#pragma omp parallel if (omp_in_parallel() == 0)
    product.run();
  };
  if (is_turned(p)) {
    Product turned = p;
    turned.a = {p.b.data, p.b.column, p.b.row};
    turned.b = {p.a.data, p.a.column, p.a.row};
    turned.M = p.N;
    turned.N = p.M;
    run(TileProduct<Side::Right, true>(turned));
  } else if (p.a.column != 1 && p.K > kChunkDepth) {
    run(TileProduct<Side::Left>(p));
  } else {
    run(TileProduct<Side::Right>(p));
  }
}

}  // namespace
}  // namespace longhaul::kernels
