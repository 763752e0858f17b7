#include <algorithm>
#include <cmath>

#include "longhaul/cuda/kernels/device.cuh"

namespace longhaul::kernels::cuda {
namespace {

/// Rotates one token in a block; a thread takes N pairs of elements at a time.
template <typename T, int N>
__global__ void rope_kernel(Rope<T> a) {
  const int64_t token = blockIdx.x;
  const int half = static_cast<int>(a.head_dim / 2);
  const int in_head = half / N;
  const int items = static_cast<int>(a.heads) * in_head;
  const int64_t angle = static_cast<int64_t>(a.position_ids[token]) * half;
  for (int item = static_cast<int>(threadIdx.x); item < items; item += kBlock) {
    const int head = item / in_head;
    const int d = item % in_head * N;
    const T* from = a.x + token * a.x_token_stride + head * a.x_head_stride + d;
    T* to = a.y + token * a.y_token_stride + head * a.y_head_stride + d;
    const auto cos = load<N>(a.cos + angle + d);
    const auto sin = load<N>(a.sin + angle + d);
    auto one = load<N>(from);
    auto two = load<N>(from + half);
    for (int j = 0; j < N; ++j) {
      const float s = sin.of[j] * (a.inverse ? -1.0F : 1.0F);
      const float x1 = to_float(one.of[j]);
      const float x2 = to_float(two.of[j]);
      assign(one.of[j], x1 * cos.of[j] - x2 * s);
      assign(two.of[j], x2 * cos.of[j] + x1 * s);
    }
    store(to, one);
    store(to + half, two);
  }
}

constexpr float kRootHalf = 0.70710678118654752F;
constexpr float kRootHalfOverPi = 0.39894228040143268F;  // sqrt(1 / (2 pi))
constexpr float kRootTwoOverPi = 0.79788456080286536F;   // sqrt(2 / pi)
constexpr float kGeluCube = 0.044715F;

/// Returns tanh(u) for the tanh form of GELU, which approximates the normal distribution
/// function at x by (1 + tanh(u)) / 2.
__device__ float gelu_tanh(float x) {
  return tanhf(kRootTwoOverPi * (x + kGeluCube * x * x * x));
}

template <bool kTanh>
__device__ float gelu(float x) {
  const float wave = kTanh ? gelu_tanh(x) : erff(x * kRootHalf);
  return 0.5F * x * (1.0F + wave);
}

template <bool kTanh>
__device__ float gelu_slope(float x) {
  if constexpr (kTanh) {
    const float wave = gelu_tanh(x);
    const float inner = kRootTwoOverPi * (1.0F + 3.0F * kGeluCube * x * x);
    return 0.5F * (1.0F + wave) + 0.5F * x * (1.0F - wave * wave) * inner;
  } else {
    const float below = 0.5F * (1.0F + erff(x * kRootHalf));
    return below + x * kRootHalfOverPi * expf(-0.5F * x * x);
  }
}

__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

/// Returns d times the activation of x; times_slope() returns d times the slope at x.
/// Factors are multiplied from left to right.
template <Activation kActivation>
__device__ float times_activation(float d, float x) {
  constexpr bool kTanh = kActivation == Activation::GeluTanh;
  if constexpr (kActivation == Activation::Silu) {
    return d * x * sigmoid(x);
  } else {
    return d * gelu<kTanh>(x);
  }
}

template <Activation kActivation>
__device__ float times_slope(float d, float x) {
  constexpr bool kTanh = kActivation == Activation::GeluTanh;
  if constexpr (kActivation == Activation::Silu) {
    const float s = sigmoid(x);
    return d * s * (1.0F + x * (1.0F - s));
  } else {
    return d * gelu_slope<kTanh>(x);
  }
}

/// Computes one row in a block; a thread takes N elements at a time.
template <typename T, int N, Activation kActivation, bool kWeighed>
__global__ void gated_product_forward_kernel(GatedProductForward<T> a) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * a.row_stride;
  T* y = a.y + static_cast<int64_t>(blockIdx.x) * a.features;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < a.features;
       i += kBlock * N) {
    auto gate = load<N>(a.gate + start + i);
    const auto up = load<N>(a.up + start + i);
    for (int j = 0; j < N; ++j) {
      float value = times_activation<kActivation>(1.0F, to_float(gate.of[j]));
      value *= to_float(up.of[j]);
      if constexpr (kWeighed) value *= a.weights[blockIdx.x];
      assign(gate.of[j], value);
    }
    store(y + i, gate);
  }
}

/// Computes one row in a block; a thread takes N elements at a time.
template <typename T, int N, Activation kActivation, bool kWeighed>
__global__ void gated_product_backward_kernel(GatedProductBackward<T> a) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * a.row_stride;
  const int64_t d_start = static_cast<int64_t>(blockIdx.x) * a.d_row_stride;
  const T* dy = a.dy + static_cast<int64_t>(blockIdx.x) * a.features;
  float sum = 0.0F;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < a.features;
       i += kBlock * N) {
    auto gate = load<N>(a.gate + start + i);
    auto up = load<N>(a.up + start + i);
    const auto d = load<N>(dy + i);
    for (int j = 0; j < N; ++j) {
      const float g = to_float(gate.of[j]);
      const float u = to_float(up.of[j]);
      float dv = to_float(d.of[j]);
      if constexpr (kWeighed) {
        sum += times_activation<kActivation>(dv, g) * u;
        dv *= a.weights[blockIdx.x];
      }
      assign(gate.of[j], times_slope<kActivation>(dv * u, g));
      assign(up.of[j], times_activation<kActivation>(dv, g));
    }
    store(a.dgate + d_start + i, gate);
    store(a.dup + d_start + i, up);
  }
  if constexpr (kWeighed) {
    sum = block_combine(sum, Add());
    if (threadIdx.x == 0) a.dweights[blockIdx.x] = sum;
  }
}

/// Copies one row in a block; a thread takes N elements at a time.
template <typename T, int N>
__global__ void gather_rows_kernel(GatherRows<T> a) {
  const T* x = a.x + a.row[blockIdx.x] * a.x_stride;
  T* y = a.y + static_cast<int64_t>(blockIdx.x) * a.y_stride;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < a.features;
       i += kBlock * N) {
    store(y + i, load<N>(x + i));
  }
}

/// Adds the rows of one token in a block; a thread takes N elements at a time.
template <typename T, int N>
__global__ void sum_rows_kernel(SumRows<T> a) {
  const int64_t* place = a.place + static_cast<int64_t>(blockIdx.x) * a.each;
  T* y = a.y + static_cast<int64_t>(blockIdx.x) * a.features;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < a.features;
       i += kBlock * N) {
    auto x = load<N>(a.x + place[0] * a.x_stride + i);
    float sum[N];
    for (int j = 0; j < N; ++j) sum[j] = to_float(x.of[j]);
    for (int64_t k = 1; k < a.each; ++k) {
      x = load<N>(a.x + place[k] * a.x_stride + i);
      for (int j = 0; j < N; ++j) sum[j] += to_float(x.of[j]);
    }
    for (int j = 0; j < N; ++j) assign(x.of[j], sum[j]);
    store(y + i, x);
  }
}

template <typename T, int N>
auto kernel_for(const GatedProductForward<T>& a) {
  return with_activation(a.activation, [&](auto kind) {
    return a.weights == nullptr
               ? &gated_product_forward_kernel<T, N, decltype(kind)::value, false>
               : &gated_product_forward_kernel<T, N, decltype(kind)::value, true>;
  });
}

template <typename T, int N>
auto kernel_for(const GatedProductBackward<T>& a) {
  return with_activation(a.activation, [&](auto kind) {
    return a.weights == nullptr
               ? &gated_product_backward_kernel<T, N, decltype(kind)::value, false>
               : &gated_product_backward_kernel<T, N, decltype(kind)::value, true>;
  });
}

/// Computes N elements in a thread; `count` is a multiple of N.
template <typename T, int N, bool kTanh>
__global__ void gelu_forward_kernel(GeluForward<T> a) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x) * N;
  if (i >= a.count) return;
  auto x = load<N>(a.x + i);
  for (int j = 0; j < N; ++j) assign(x.of[j], gelu<kTanh>(to_float(x.of[j])));
  store(a.y + i, x);
}

/// Computes N elements in a thread; `count` is a multiple of N.
template <typename T, int N, bool kTanh>
__global__ void gelu_backward_kernel(GeluBackward<T> a) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x) * N;
  if (i >= a.count) return;
  auto d = load<N>(a.dy + i);
  const auto x = load<N>(a.x + i);
  for (int j = 0; j < N; ++j) {
    assign(d.of[j], to_float(d.of[j]) * gelu_slope<kTanh>(to_float(x.of[j])));
  }
  store(a.dx + i, d);
}

/// Merges rows with `lanes` threads for a row and as many rows in a block as fit; a
/// thread takes N elements at a time.
template <typename T, int N>
__global__ void merge_attention_kernel(MergeAttention<T> a, int lanes) {
  const int rows = kBlock / lanes;
  const int in_block = static_cast<int>(threadIdx.x) / lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * rows + in_block;
  const bool mine = in_block < rows && row < a.sequences * a.queries * a.heads;
  float* lse = nullptr;
  float now = 0.0F;
  if (mine) {
    const int64_t head = row % a.heads;
    const int64_t query = row / a.heads % a.queries;
    const int64_t sequence = row / a.heads / a.queries;
    lse = a.lse + sequence * a.lse_sequence_stride + head * a.lse_head_stride + query;
    const float before = *lse;
    const float fresh = a.part_lse[(sequence * a.heads + head) * a.queries + query];
    const float larger = fmaxf(before, fresh);
    now = larger == -INFINITY ? larger
                              : larger + log1pf(expf(fminf(before, fresh) - larger));
    const float of_out = now == -INFINITY ? 0.0F : expf(before - now);
    const float of_part = now == -INFINITY ? 0.0F : expf(fresh - now);
    const T* part = a.part + row * a.head_dim;
    float* out =
        a.out + sequence * a.out_sequence_stride + (query * a.heads + head) * a.head_dim;
    for (int d = static_cast<int>(threadIdx.x) % lanes * N; d < a.head_dim;
         d += lanes * N) {
      const auto x = load<N>(part + d);
      auto y = load<N>(out + d);
      for (int j = 0; j < N; ++j)
        y.of[j] = y.of[j] * of_out + to_float(x.of[j]) * of_part;
      store(out + d, y);
    }
  }
  __syncthreads();  // all threads of a row have read the old lse
  if (mine && static_cast<int>(threadIdx.x) % lanes == 0) *lse = now;
}

}  // namespace

template <typename T>
void enqueue(const Rope<T>& a, Stream stream) {
  if (a.tokens == 0) return;
  const bool wide = aligned(a.x, a.y, a.cos, a.sin) &&
                    in_wide_steps<T>(a.head_dim / 2, a.x_token_stride, a.x_head_stride,
                                     a.y_token_stride, a.y_head_stride);
  with_width<T>(wide,
                [&](auto n) { launch("rope", rope_kernel<T, n>, a.tokens, stream, a); });
}

template <typename T>
void enqueue(const GatedProductForward<T>& a, Stream stream) {
  if (a.rows == 0) return;
  const bool wide =
      aligned(a.gate, a.up, a.y) && in_wide_steps<T>(a.features, a.row_stride);
  with_width<T>(wide, [&](auto n) {
    launch("gated_product_forward", kernel_for<T, n>(a), a.rows, stream, a);
  });
}

template <typename T>
void enqueue(const GatedProductBackward<T>& a, Stream stream) {
  if (a.rows == 0) return;
  const bool wide = aligned(a.dy, a.gate, a.up, a.dgate, a.dup) &&
                    in_wide_steps<T>(a.features, a.row_stride, a.d_row_stride);
  with_width<T>(wide, [&](auto n) {
    launch("gated_product_backward", kernel_for<T, n>(a), a.rows, stream, a);
  });
}

template <typename T>
void enqueue(const GatherRows<T>& a, Stream stream) {
  if (a.rows == 0) return;
  const bool wide =
      aligned(a.x, a.y) && in_wide_steps<T>(a.features, a.x_stride, a.y_stride);
  with_width<T>(wide, [&](auto n) {
    launch("gather_rows", gather_rows_kernel<T, n>, a.rows, stream, a);
  });
}

template <typename T>
void enqueue(const SumRows<T>& a, Stream stream) {
  if (a.tokens == 0) return;
  const bool wide = aligned(a.x, a.y) && in_wide_steps<T>(a.features, a.x_stride);
  with_width<T>(wide, [&](auto n) {
    launch("sum_rows", sum_rows_kernel<T, n>, a.tokens, stream, a);
  });
}

template <typename T>
void enqueue(const GeluForward<T>& a, Stream stream) {
  if (a.count == 0) return;
  with_width<T>(aligned(a.x, a.y) && in_wide_steps<T>(a.count), [&](auto n) {
    const auto kernel =
        a.tanh ? gelu_forward_kernel<T, n, true> : gelu_forward_kernel<T, n, false>;
    launch("gelu_forward", kernel, blocks_of(a.count, kBlock * n), stream, a);
  });
}

template <typename T>
void enqueue(const GeluBackward<T>& a, Stream stream) {
  if (a.count == 0) return;
  with_width<T>(aligned(a.dy, a.x, a.dx) && in_wide_steps<T>(a.count), [&](auto n) {
    const auto kernel =
        a.tanh ? gelu_backward_kernel<T, n, true> : gelu_backward_kernel<T, n, false>;
    launch("gelu_backward", kernel, blocks_of(a.count, kBlock * n), stream, a);
  });
}

template <typename T>
void enqueue(const MergeAttention<T>& a, Stream stream) {
  const int64_t rows = a.sequences * a.queries * a.heads;
  if (rows == 0) return;
  const bool wide =
      aligned(a.part, a.out) && in_wide_steps<T>(a.head_dim, a.out_sequence_stride);
  with_width<T>(wide, [&](auto n) {
    const int lanes =
        static_cast<int>(std::min<int64_t>(kBlock, blocks_of(a.head_dim, n)));
    launch("merge_attention", merge_attention_kernel<T, n>,
           blocks_of(rows, kBlock / lanes), stream, a, lanes);
  });
}

LH_CUDA_RUN(Rope)
LH_CUDA_RUN(GatedProductForward)
LH_CUDA_RUN(GatedProductBackward)
LH_CUDA_RUN(GatherRows)
LH_CUDA_RUN(SumRows)
LH_CUDA_RUN(GeluForward)
LH_CUDA_RUN(GeluBackward)
LH_CUDA_RUN(MergeAttention)

}  // namespace longhaul::kernels::cuda
