#include <utility>

#include "longhaul/cuda/kernels/device.cuh"
#include "longhaul/cuda/kernels/tensor_cores.cuh"

namespace longhaul::kernels::cuda {
namespace {

/// The gradient of an expert is cut into squares of kTile x kTile, one for each block. A
/// block walks through the rows of the expert in their order, kRows at a time. It copies
/// them to shared memory with kPitch elements from row to row, which avoids bank
/// conflicts.
template <typename T>
struct TileOf {
  static constexpr int kTile = 64, kRows = 16, kPitch = 68;
};
template <>
struct TileOf<Bf16> {
  static constexpr int kTile = 128, kRows = 32, kPitch = 136;
};

/// Calls act(constant) for the numbers below kCount. An array that is indexed by such
/// constants alone stays in registers.
template <int kCount, typename Act>
__device__ void for_numbers(const Act& act) {
  [&]<int... kNumbers>(std::integer_sequence<int, kNumbers...>) {
    (act(std::integral_constant<int, kNumbers>()), ...);
  }(std::make_integer_sequence<int, kCount>());
}

/// Some rows of dy and x in shared memory, cut to the columns of a tile.
template <typename T>
struct alignas(16) Stage {
  T dy[TileOf<T>::kRows * TileOf<T>::kPitch];
  T x[TileOf<T>::kRows * TileOf<T>::kPitch];
};

/// The part of a stage's matrix that a thread copies, N elements at a time: those at
/// column() in every kStep-th row from row() on.
template <typename T, int N>
struct Share {
  static constexpr int kAcross = TileOf<T>::kTile / N;
  static constexpr int kStep = kBlock / kAcross;
  static constexpr int kPacks = TileOf<T>::kRows / kStep;

  static __device__ int row() { return static_cast<int>(threadIdx.x) / kAcross; }
  static __device__ int column() { return static_cast<int>(threadIdx.x) % kAcross * N; }

  /// Reads the first `rows` rows of a matrix and `columns` columns; there is 0 beyond.
  __device__ void fetch(const T* matrix, int64_t stride, int rows, int64_t columns) {
    const T* from = matrix + row() * stride + column();
    const int own = column() < columns ? rows - row() : 0;
    for_numbers<kPacks>([&](auto i) {
      packs[i] = i * kStep < own ? load<N>(from + i * kStep * stride) : Pack<T, N>{};
    });
  }
  __device__ void put(T* stage) const {
    T* to = stage + row() * TileOf<T>::kPitch + column();
    for_numbers<kPacks>([&](auto i) {
      T* at = to + i * kStep * TileOf<T>::kPitch;
      if constexpr (N == 1) {
        *at = packs[i].of[0];
      } else {
        unsigned words[4];
        memcpy(words, packs[i].of, 16);
        *reinterpret_cast<uint4*>(at) = {words[0], words[1], words[2], words[3]};
      }
    });
  }

  Pack<T, N> packs[kPacks];
};

/// The sums of a tile, of which a thread has 4 x 4.
template <typename T>
class Sums {
 public:
  static constexpr int kEach = 4;  ///< elements side by side in for_each()

  __device__ void add(const Stage<float>& stage) {
    for (int k = 0; k < Tile::kRows; ++k) {
      const auto dy = load<kEach>(stage.dy + k * Tile::kPitch + row());
      const auto x = load<kEach>(stage.x + k * Tile::kPitch + column());
      for_numbers<kEach>([&](auto i) {
        for_numbers<kEach>(
            [&](auto j) { sums_[i].of[j] = fmaf(dy.of[i], x.of[j], sums_[i].of[j]); });
      });
    }
  }

  /// Calls act(row, column, sums) for each kEach neighbours among the thread's elements.
  template <typename Act>
  __device__ void for_each(const Act& act) const {
    for_numbers<kEach>([&](auto i) { act(row() + i, column(), sums_[i]); });
  }

 private:
  using Tile = TileOf<float>;
  static constexpr int kAcross = Tile::kTile / kEach;
  static __device__ int row() { return static_cast<int>(threadIdx.x) / kAcross * kEach; }
  static __device__ int column() {
    return static_cast<int>(threadIdx.x) % kAcross * kEach;
  }

  Pack<float, kEach> sums_[kEach] = {};
};

/// The sums of a tile in bf16: a warp has 2 x 4 squares of 16 x 16, each of which is two
/// products of tensor cores.
template <>
class Sums<Bf16> {
 public:
  static constexpr int kEach = 8;

  __device__ void add(const Stage<Bf16>& stage) {
    // Each thread loads row `r` of square `q`. The second square of dy lies beside the
    // first one, and the second square of x below it, as add_product() wants them.
    const int r = lane() % 8, q = lane() / 8;
    const Bf16* of_dy = stage.dy + (q / 2 * 8 + r) * Tile::kPitch + row() + q % 2 * 8;
    const Bf16* of_x = stage.x + (q % 2 * 8 + r) * Tile::kPitch + column() + q / 2 * 8;
    for_numbers<Tile::kRows / kSide>([&](auto step) {
      constexpr int kOffset = step * kSide * Tile::kPitch;
      unsigned dy[kDown][4];
      for_numbers<kDown>(
          [&](auto i) { load_transposed(dy[i], of_dy + kOffset + i * kSide); });
      for_numbers<kAcross>([&](auto j) {
        unsigned x[4];
        load_transposed(x, of_x + kOffset + j * kSide);
        for_numbers<kDown>([&](auto i) {
          add_product(sums_[i][j][0], dy[i], x[0], x[1]);
          add_product(sums_[i][j][1], dy[i], x[2], x[3]);
        });
      });
    });
  }

  template <typename Act>
  __device__ void for_each(const Act& act) const {
    // Four threads hold the sums of one row that lie side by side. The sums go through
    // shared memory, so that one thread gets kEach of them.
    struct alignas(16) Square {
      float of[kSide * kSquarePitch];
    };
    __shared__ Square squares[kBlock / kWarp];
    float* square = squares[warp()].of;
    const int r = lane() * kEach / kSide, c = lane() * kEach % kSide;
    for_numbers<kDown>([&](auto i) {
      for_numbers<kAcross>([&](auto j) {
        float* own = square + lane() / 4 * kSquarePitch + lane() % 4 * 2;
        for_numbers<2>([&](auto half) {
          for_numbers<4>([&](auto s) {
            own[s / 2 * 8 * kSquarePitch + half * 8 + s % 2] = sums_[i][j][half][s];
          });
        });
        __syncwarp();
        const auto found = load<kEach>(square + r * kSquarePitch + c);
        __syncwarp();  // all have read what the next square overwrites
        act(row() + i * kSide + r, column() + j * kSide + c, found);
      });
    });
  }

 private:
  using Tile = TileOf<Bf16>;
  static constexpr int kSide = 16, kDown = 2, kAcross = 4, kSquarePitch = 20;
  static constexpr int kWarpsAcross = Tile::kTile / (kAcross * kSide);

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / kWarp; }
  static __device__ int row() { return warp() / kWarpsAcross * kDown * kSide; }
  static __device__ int column() { return warp() % kWarpsAcross * kAcross * kSide; }

  float sums_[kDown][kAcross][2][4] = {};
};

/// Writes sums of one row from `to` on, or adds them to what is there; `left` elements
/// are within the row.
template <int N, typename G, int kCount>
__device__ void put_sums(G* to, const Pack<float, kCount>& sums, int64_t left, bool add) {
  if constexpr (N == kCount) {
    if (left <= 0) return;
    Pack<G, N> pack{};
    if (add) pack = load<N>(to);
    for (int j = 0; j < N; ++j) {
      assign(pack.of[j], add ? to_float(pack.of[j]) + sums.of[j] : sums.of[j]);
    }
    store(to, pack);
  } else {
    for (int j = 0; j < kCount; ++j) {
      if (j >= left) return;
      assign(to[j], add ? to_float(to[j]) + sums.of[j] : sums.of[j]);
    }
  }
}

/// Computes one tile of one expert in a block; each expert has `down` x `across` tiles. A
/// thread reads and writes N elements at a time.
template <typename T, typename G, int N>
__global__ void __launch_bounds__(kBlock, N == 1 ? 1 : 2)
    grouped_gradient_kernel(GroupedGradient<T> a, G* gradient, int64_t down,
                            int64_t across) {
  using Tile = TileOf<T>;
  const int64_t expert = blockIdx.x / (down * across);
  const int begin = a.offsets[expert], end = a.offsets[expert + 1];
  if (begin == end && a.add) return;
  const int64_t m = blockIdx.x / across % down * Tile::kTile;
  const int64_t n = blockIdx.x % across * Tile::kTile;
  __shared__ Stage<T> stages[2];
  Sums<T> sums;
  Share<T, N> dy, x;
  const auto fetch = [&](int row) {
    dy.fetch(a.dy + row * a.dy_stride + m, a.dy_stride, end - row, a.M - m);
    x.fetch(a.x + row * a.x_stride + n, a.x_stride, end - row, a.N - n);
  };
  fetch(begin);
  int now = 0;
  for (int row = begin; row < end; row += Tile::kRows) {
    // No thread reads stages[now] any more. All threads have passed the barrier of the
    // loop's previous turn, after which they read the other stage.
    dy.put(stages[now].dy);
    x.put(stages[now].x);
    __syncthreads();
    fetch(row + Tile::kRows);  // reads nothing beyond the last row
    sums.add(stages[now]);
    now = 1 - now;
  }
  G* to = gradient + expert * a.stride;
  sums.for_each([&](int r, int c, const auto& found) {
    if (m + r >= a.M) return;
    put_sums<N>(to + (m + r) * a.N + n + c, found, a.N - n - c, a.add);
  });
}

template <typename T, typename G>
void enqueue(const GroupedGradient<T>& a, G* gradient, Stream stream) {
  if (a.experts == 0 || a.M == 0 || a.N == 0) return;
  const int64_t down = blocks_of(a.M, TileOf<T>::kTile);
  const int64_t across = blocks_of(a.N, TileOf<T>::kTile);
  const bool wide = aligned(a.dy, a.x, gradient) &&
                    in_wide_steps<T>(a.dy_stride, a.x_stride, a.M, a.N, a.stride);
  with_width<T>(wide, [&](auto n) {
    launch("grouped_gradient", grouped_gradient_kernel<T, G, n>,
           a.experts * down * across, stream, a, gradient, down, across);
  });
}

}  // namespace

template <typename T>
void enqueue(const GroupedGradient<T>& a, Stream stream) {
  if (a.wide != nullptr) {
    enqueue(a, a.wide, stream);
  } else {
    enqueue(a, a.y, stream);
  }
}

LH_CUDA_RUN(GroupedGradient)

}  // namespace longhaul::kernels::cuda
