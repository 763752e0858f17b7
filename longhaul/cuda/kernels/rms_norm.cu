#include "longhaul/cuda/kernels/device.cuh"

namespace longhaul::kernels::cuda {
namespace {

/// Returns the offset of a row; the heads of a token follow each other.
template <typename Norm>
__device__ int64_t start_of_row(const Norm& a, int64_t row, int64_t token_stride) {
  return row / a.heads * token_stride + row % a.heads * a.features;
}

// Each form of the norm is a type, for which kernels of its own are compiled. A form says
// whether the normed element is rounded first (kRounds), gives the factor of a normed
// element (factor()), and multiplies a gradient by this factor (times()).

struct WeightBeforeCast {
  static constexpr bool kRounds = false;
  template <typename T>
  static __device__ float factor(T weight) {
    return to_float(weight);
  }
  template <typename T>
  static __device__ float times(float d, T weight) {
    return d * to_float(weight);
  }
};

struct WeightAfterCast : WeightBeforeCast {
  static constexpr bool kRounds = true;
};

struct OnePlusWeight {
  static constexpr bool kRounds = false;
  template <typename T>
  static __device__ float factor(T weight) {
    return 1.0F + to_float(weight);
  }
  /// Returns d (1 + weight) without a register for 1 + weight.
  template <typename T>
  static __device__ float times(float d, T weight) {
    return fmaf(d, to_float(weight), d);
  }
};

/// Normalizes one row in a block; a thread takes N elements at a time.
template <typename T, int N, typename Form>
__global__ void forward_kernel(RmsNormForward<T> a) {
  const T* x = a.x + start_of_row(a, blockIdx.x, a.x_token_stride);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * a.features;
  T* y = a.y + row;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * N;
  const int64_t step = static_cast<int64_t>(blockDim.x) * N;
  float squares = 0.0F;
  for (int64_t i = first; i < a.features; i += step) {
    auto in = load<N>(x + i);
    if (a.delta != nullptr) {
      const auto delta = load<N>(a.delta + row + i);
      for (int j = 0; j < N; ++j) {
        assign(in.of[j], to_float(in.of[j]) + to_float(delta.of[j]));
      }
      store(a.sum + row + i, in);
    }
    for (int j = 0; j < N; ++j) squares += to_float(in.of[j]) * to_float(in.of[j]);
  }
  const float mean = block_combine(squares, Add()) / static_cast<float>(a.features);
  const float inverse = 1.0F / sqrtf(mean + static_cast<float>(a.eps));
  if (threadIdx.x == 0) a.inverse_rms[blockIdx.x] = inverse;
  if (a.delta != nullptr) x = a.sum + row;  // a thread reads only what it wrote
  for (int64_t i = first; i < a.features; i += step) {
    auto out = load<N>(x + i);
    const auto weight = load<N>(a.weight + i);
    for (int j = 0; j < N; ++j) {
      float normal = to_float(out.of[j]) * inverse;
      if constexpr (Form::kRounds) normal = rounded<T>(normal);
      assign(out.of[j], Form::factor(weight.of[j]) * normal);
    }
    store(y + i, out);
  }
}

/// Returns the gradient of an element x. `mean` is the mean of dy * factor * x over the
/// element's row.
template <typename Form, typename T>
__device__ float input_gradient(float d, T weight, float x, float inverse, float mean) {
  return inverse * (Form::times(d, weight) - x * inverse * mean);
}

/// Computes dx and the blocks' parts of the weight's gradient. A block takes every
/// gridDim-th row. A thread takes P packs of N elements of a row, which stay in registers
/// from the sum over the row to its gradient. What the rows of a block add to the
/// weight's gradient goes into the block's row of `partial`.
template <typename T, int N, int P, typename Form>
__global__ void gradient_kernel(RmsNormBackward<T> a, int64_t rows, float* partial) {
  const int64_t first = static_cast<int64_t>(threadIdx.x) * N;
  const int64_t step = static_cast<int64_t>(blockDim.x) * N;
  Pack<T, N> weight[P];
  Pack<float, N> sums[P] = {};
  for (int p = 0; p < P; ++p) {
    if (first + p * step < a.features) weight[p] = load<N>(a.weight + first + p * step);
  }
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* dy = a.dy + row * a.features;
    const T* x = a.x + start_of_row(a, row, a.x_token_stride);
    const float inverse = a.inverse_rms[row];
    Pack<T, N> d[P], in[P];
    float dot = 0.0F;
    for (int p = 0; p < P; ++p) {
      const int64_t i = first + p * step;
      if (i >= a.features) continue;
      d[p] = load<N>(dy + i);
      in[p] = load<N>(x + i);
      for (int j = 0; j < N; ++j) {
        const float of_weight = to_float(d[p].of[j]) * to_float(in[p].of[j]) * inverse;
        dot += Form::times(of_weight, weight[p].of[j]);
        sums[p].of[j] += of_weight;
      }
    }
    const float mean = block_combine(dot, Add()) / static_cast<float>(a.features);
    T* dx = a.dx + start_of_row(a, row, a.dx_token_stride);
    for (int p = 0; p < P; ++p) {
      const int64_t i = first + p * step;
      if (i >= a.features) continue;
      Pack<T, N> dsum{};
      if (a.dsum != nullptr) dsum = load<N>(a.dsum + row * a.features + i);
      for (int j = 0; j < N; ++j) {
        const float own = input_gradient<Form>(to_float(d[p].of[j]), weight[p].of[j],
                                               to_float(in[p].of[j]), inverse, mean);
        assign(d[p].of[j], a.dsum == nullptr ? own : own + to_float(dsum.of[j]));
      }
      store(dx + i, d[p]);
    }
  }
  if (a.dweight == nullptr) return;
  for (int p = 0; p < P; ++p) {
    const int64_t i = first + p * step;
    if (i < a.features) store(partial + blockIdx.x * a.features + i, sums[p]);
  }
}

/// Does the work of gradient_kernel() for rows that do not fit into registers.
template <typename T, typename Form>
__global__ void long_rows_gradient_kernel(RmsNormBackward<T> a, int64_t rows,
                                          float* partial) {
  float* sums = partial + blockIdx.x * a.features;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* dy = a.dy + row * a.features;
    const T* x = a.x + start_of_row(a, row, a.x_token_stride);
    const float inverse = a.inverse_rms[row];
    float dot = 0.0F;
    for (int64_t i = threadIdx.x; i < a.features; i += kBlock) {
      const float of_weight = to_float(dy[i]) * to_float(x[i]) * inverse;
      dot += Form::times(of_weight, a.weight[i]);
      if (a.dweight == nullptr) continue;
      sums[i] = row == blockIdx.x ? of_weight : sums[i] + of_weight;
    }
    const float mean = block_combine(dot, Add()) / static_cast<float>(a.features);
    T* dx = a.dx + start_of_row(a, row, a.dx_token_stride);
    for (int64_t i = threadIdx.x; i < a.features; i += kBlock) {
      const float own = input_gradient<Form>(to_float(dy[i]), a.weight[i], to_float(x[i]),
                                             inverse, mean);
      assign(dx[i],
             a.dsum == nullptr ? own : own + to_float(a.dsum[row * a.features + i]));
    }
  }
}

/// The threads of a block: kAcross side by side in a row of partial sums, for kDown rows
/// at a time.
constexpr int kAcross = 4;
constexpr int kDown = kBlock / kAcross;

/// Adds the rows of `partial` to dweight. A block owns kAcross * N neighbouring features
/// and walks all rows, so that each sum has one fixed order.
template <int N>
__global__ void weight_gradient_kernel(const float* partial, int64_t rows,
                                       int64_t features, float* dweight) {
  constexpr int kWidth = kAcross * N;
  __shared__ float down_sums[kDown][kWidth];
  const int across = static_cast<int>(threadIdx.x) % kAcross * N;
  const int down = static_cast<int>(threadIdx.x) / kAcross;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWidth;
  float sums[N] = {};
  if (first + across < features) {
    for (int64_t r = down; r < rows; r += kDown) {
      const auto in = load<N>(partial + r * features + first + across);
      for (int j = 0; j < N; ++j) sums[j] += in.of[j];
    }
  }
  for (int j = 0; j < N; ++j) down_sums[down][across + j] = sums[j];
  __syncthreads();
  const auto own = static_cast<int>(threadIdx.x);
  if (own >= kWidth || first + own >= features) return;
  float total = down_sums[0][own];
  for (int r = 1; r < kDown; ++r) total += down_sums[r][own];
  dweight[first + own] += total;
}

/// The number of threads that a row takes, and of packs of N elements that a thread
/// takes. If `packs` is larger than kMostPacks, the row does not fit into registers.
struct RowShape {
  int threads, packs;
};
constexpr int kMostPacks = 8;
RowShape shape_of(int64_t features, int n) {
  for (int threads = kWarp; threads <= kBlock; threads *= 2) {
    if (features <= int64_t{threads} * n) return {threads, 1};
  }
  int packs = 2;
  while (packs <= kMostPacks && int64_t{kBlock} * n * packs < features) packs *= 2;
  return {kBlock, packs};
}

/// Returns the number of blocks of a backward; the limit keeps the partial sums few in
/// comparison to the rows.
int64_t blocks_of_rows(int64_t rows, const RowShape& shape) {
  const int64_t most = int64_t{512} * (kBlock / shape.threads);
  return rows < most ? rows : most;
}

/// Returns the kernel for rows of this shape; a thread takes N elements at a time.
template <typename T, int N, typename Form>
auto gradient_kernel_of(const RowShape& shape) {
  switch (shape.packs) {
    case 1:
      return &gradient_kernel<T, N, 1, Form>;
    case 2:
      return &gradient_kernel<T, N, 2, Form>;
    case 4:
      return &gradient_kernel<T, N, 4, Form>;
    case kMostPacks:
      return &gradient_kernel<T, N, kMostPacks, Form>;
    default:
      return &long_rows_gradient_kernel<T, Form>;
  }
}

/// Returns the kernel for a form that is known at run time. Where a form rounds makes no
/// difference here: a rounding has no gradient of its own.
template <typename T, int N>
auto gradient_kernel_of(const RowShape& shape, RmsForm form) {
  return form == RmsForm::OnePlusWeight
             ? gradient_kernel_of<T, N, OnePlusWeight>(shape)
             : gradient_kernel_of<T, N, WeightAfterCast>(shape);
}

template <typename T, int N>
auto forward_kernel_of(RmsForm form) {
  switch (form) {
    case RmsForm::WeightBeforeCast:
      return &forward_kernel<T, N, WeightBeforeCast>;
    case RmsForm::OnePlusWeight:
      return &forward_kernel<T, N, OnePlusWeight>;
    default:
      return &forward_kernel<T, N, WeightAfterCast>;
  }
}

}  // namespace

template <typename T>
void enqueue(const RmsNormForward<T>& a, Stream stream) {
  const int64_t rows = a.tokens * a.heads;
  if (rows == 0) return;
  const bool wide = aligned(a.x, a.weight, a.y, a.delta, a.sum) &&
                    in_wide_steps<T>(a.features, a.x_token_stride);
  with_width<T>(wide, [&](auto n) {
    launch("rms_norm_forward", forward_kernel_of<T, n>(a.form),
           Grid{rows, shape_of(a.features, n).threads}, stream, a);
  });
}

/// Returns the number of floats for the blocks' parts of the weight's gradient, which
/// depends on the sizes alone.
template <typename T>
int64_t scratch_of(const RmsNormBackward<T>& a) {
  if (a.dweight == nullptr) return 0;
  // This is the number for 16 bytes at a time. If elements are taken one by one, there
  // are more threads in a block and fewer blocks.
  return blocks_of_rows(a.tokens * a.heads, shape_of(a.features, kWide<T>)) * a.features;
}

template <typename T>
void enqueue(const RmsNormBackward<T>& a, Stream stream, float* partial) {
  const int64_t rows = a.tokens * a.heads;
  if (rows == 0) return;
  const bool wide = aligned(a.dy, a.x, a.weight, a.dx, a.dsum) &&
                    in_wide_steps<T>(a.features, a.x_token_stride, a.dx_token_stride);
  with_width<T>(wide, [&](auto n) {
    const RowShape shape = shape_of(a.features, n);
    const int64_t blocks = blocks_of_rows(rows, shape);
    launch("rms_norm_backward", gradient_kernel_of<T, n>(shape, a.form),
           Grid{blocks, shape.threads}, stream, a, rows, partial);
    if (a.dweight == nullptr) return;
    with_width<float>(aligned(partial) && a.features % kWide<float> == 0, [&](auto m) {
      launch("rms_norm_weight_gradient", weight_gradient_kernel<m>,
             blocks_of(a.features, kAcross * m), stream, partial, blocks, a.features,
             a.dweight);
    });
  });
}

LH_CUDA_RUN(RmsNormForward)
LH_CUDA_RUN_WITH_SCRATCH(RmsNormBackward)

}  // namespace longhaul::kernels::cuda
