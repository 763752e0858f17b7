#include "longhaul/ops/kernels/cuda/device.cuh"

namespace longhaul::kernels::cuda {
namespace {

/// Where the row of this block begins: the heads of a token follow each other.
template <typename Norm>
__device__ int64_t start_of_row(const Norm& a, int64_t token_stride) {
  const auto heads = static_cast<unsigned>(a.heads);
  return blockIdx.x / heads * token_stride + blockIdx.x % heads * a.features;
}

/// One block a row, N elements a thread at a time.
template <typename T, int N>
__global__ void forward_kernel(RmsNormForward<T> a) {
  const T* x = a.x + start_of_row(a, a.x_token_stride);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * a.features;
  T* y = a.y + row;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * N;
  float squares = 0.0F;
  for (int64_t i = first; i < a.features; i += kBlock * N) {
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
  if (a.delta != nullptr) x = a.sum + row;  // of which a thread reads what it wrote
  for (int64_t i = first; i < a.features; i += kBlock * N) {
    auto out = load<N>(x + i);
    const auto weight = load<N>(a.weight + i);
    for (int j = 0; j < N; ++j) {
      const float normal = rounded<T>(to_float(out.of[j]) * inverse);
      assign(out.of[j], to_float(weight.of[j]) * normal);
    }
    store(y + i, out);
  }
}

/// One block a row, N elements a thread at a time.
template <typename T, int N>
__global__ void input_gradient_kernel(RmsNormBackward<T> a) {
  const int64_t first = static_cast<int64_t>(threadIdx.x) * N;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * a.features;
  const T* dy = a.dy + row;
  const T* x = a.x + start_of_row(a, a.x_token_stride);
  T* dx = a.dx + start_of_row(a, a.dx_token_stride);
  const float inverse = a.inverse_rms[blockIdx.x];
  float dot = 0.0F;
  for (int64_t i = first; i < a.features; i += kBlock * N) {
    const auto d = load<N>(dy + i);
    const auto weight = load<N>(a.weight + i);
    const auto in = load<N>(x + i);
    for (int j = 0; j < N; ++j) {
      dot += to_float(d.of[j]) * to_float(weight.of[j]) * to_float(in.of[j]) * inverse;
    }
  }
  const float mean = block_combine(dot, Add()) / static_cast<float>(a.features);
  for (int64_t i = first; i < a.features; i += kBlock * N) {
    auto d = load<N>(dy + i);
    const auto weight = load<N>(a.weight + i);
    const auto in = load<N>(x + i);
    Pack<T, N> dsum{};
    if (a.dsum != nullptr) dsum = load<N>(a.dsum + row + i);
    for (int j = 0; j < N; ++j) {
      const float normal = to_float(in.of[j]) * inverse;
      const float own =
          inverse * (to_float(d.of[j]) * to_float(weight.of[j]) - normal * mean);
      assign(d.of[j], a.dsum == nullptr ? own : own + to_float(dsum.of[j]));
    }
    store(dx + i, d);
  }
}

/// Threads of a block side by side in a row, and so many rows at a time.
constexpr int kAcross = 4;
constexpr int kDown = kBlock / kAcross;

/// A block owns kAcross * N neighbouring features and walks all rows, so that each sum
/// has one fixed order.
template <typename T, int N>
__global__ void weight_gradient_kernel(RmsNormBackward<T> a) {
  constexpr int kWidth = kAcross * N;
  __shared__ float partial[kDown][kWidth];
  const int across = static_cast<int>(threadIdx.x) % kAcross * N;
  const int down = static_cast<int>(threadIdx.x) / kAcross;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWidth;
  float sums[N] = {};
  if (first + across < a.features) {
    // The token and the head of row r, without a division for each row.
    int64_t token = down / a.heads, head = down % a.heads;
    const int64_t tokens = kDown / a.heads, heads = kDown % a.heads;
    for (int64_t r = down; r < a.tokens * a.heads; r += kDown) {
      const T* x = a.x + token * a.x_token_stride + head * a.features;
      const auto d = load<N>(a.dy + r * a.features + first + across);
      const auto in = load<N>(x + first + across);
      const float inverse = a.inverse_rms[r];
      for (int j = 0; j < N; ++j) {
        sums[j] += to_float(d.of[j]) * to_float(in.of[j]) * inverse;
      }
      token += tokens;
      head += heads;
      if (head >= a.heads) {
        head -= a.heads;
        ++token;
      }
    }
  }
  for (int j = 0; j < N; ++j) partial[down][across + j] = sums[j];
  __syncthreads();
  const auto own = static_cast<int>(threadIdx.x);
  if (own >= kWidth || first + own >= a.features) return;
  float total = partial[0][own];
  for (int r = 1; r < kDown; ++r) total += partial[r][own];
  a.dweight[first + own] += total;
}

/// Steps of so many elements keep the alignment.
template <typename T, typename... Steps>
bool whole_accesses(Steps... steps) {
  return ((steps % kWide<T> == 0) && ...);
}

}  // namespace

template <typename T>
void run(const RmsNormForward<T>& a, Stream stream) {
  const int64_t rows = a.tokens * a.heads;
  if (rows == 0) return;
  const bool wide = aligned(a.x, a.weight, a.y, a.delta, a.sum) &&
                    whole_accesses<T>(a.features, a.x_token_stride);
  with_width<T>(wide, [&](auto n) {
    launch("rms_norm_forward", forward_kernel<T, n>, rows, stream, a);
  });
}

template <typename T>
void run(const RmsNormBackward<T>& a, Stream stream) {
  const int64_t rows = a.tokens * a.heads;
  if (rows == 0) return;
  const bool wide = aligned(a.dy, a.x, a.weight, a.dx, a.dsum) &&
                    whole_accesses<T>(a.features, a.x_token_stride, a.dx_token_stride);
  with_width<T>(wide, [&](auto n) {
    if (a.dweight != nullptr) {
      launch("rms_norm_weight_gradient", weight_gradient_kernel<T, n>,
             blocks_of(a.features, kAcross * n), stream, a);
    }
    launch("rms_norm_input_gradient", input_gradient_kernel<T, n>, rows, stream, a);
  });
}

template void run(const RmsNormForward<float>&, Stream);
template void run(const RmsNormForward<Bf16>&, Stream);
template void run(const RmsNormBackward<float>&, Stream);
template void run(const RmsNormBackward<Bf16>&, Stream);

}  // namespace longhaul::kernels::cuda
