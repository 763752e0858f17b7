#include "longhaul/ops/kernels/cuda/device.cuh"

namespace longhaul::kernels::cuda {
namespace {

/// One block a row.
template <typename T>
__global__ void forward_kernel(RmsNormForward<T> a) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * a.features;
  float squares = 0.0F;
  for (int64_t i = threadIdx.x; i < a.features; i += kBlock) {
    const float v = to_float(a.x[start + i]);
    squares += v * v;
  }
  const float mean = block_combine(squares, Add()) / static_cast<float>(a.features);
  const float inverse = 1.0F / sqrtf(mean + static_cast<float>(a.eps));
  if (threadIdx.x == 0) a.inverse_rms[blockIdx.x] = inverse;
  for (int64_t i = threadIdx.x; i < a.features; i += kBlock) {
    const float normal = rounded<T>(to_float(a.x[start + i]) * inverse);
    assign(a.y[start + i], to_float(a.weight[i]) * normal);
  }
}

/// One block a row.
template <typename T>
__global__ void input_gradient_kernel(RmsNormBackward<T> a) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * a.features;
  const T* dy = a.dy + start;
  const T* x = a.x + start;
  const float inverse = a.inverse_rms[blockIdx.x];
  float dot = 0.0F;
  for (int64_t i = threadIdx.x; i < a.features; i += kBlock) {
    dot += to_float(dy[i]) * to_float(a.weight[i]) * to_float(x[i]) * inverse;
  }
  const float mean = block_combine(dot, Add()) / static_cast<float>(a.features);
  for (int64_t i = threadIdx.x; i < a.features; i += kBlock) {
    const float normal = to_float(x[i]) * inverse;
    assign(a.dx[start + i],
           inverse * (to_float(dy[i]) * to_float(a.weight[i]) - normal * mean));
  }
}

/// A block owns 32 neighbouring features and walks all rows, 8 at a time, so that each
/// sum has one fixed order.
template <typename T>
__global__ void weight_gradient_kernel(RmsNormBackward<T> a) {
  constexpr int kRows = kBlock / kWarp;
  __shared__ float partial[kRows][kWarp];
  const int lane = threadIdx.x % kWarp;
  const int row = threadIdx.x / kWarp;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0.0F;
  if (i < a.features) {
    for (int64_t r = row; r < a.rows; r += kRows) {
      const int64_t at = r * a.features + i;
      sum += to_float(a.dy[at]) * to_float(a.x[at]) * a.inverse_rms[r];
    }
  }
  partial[row][lane] = sum;
  __syncthreads();
  if (row == 0 && i < a.features) {
    float total = partial[0][lane];
    for (int r = 1; r < kRows; ++r) total += partial[r][lane];
    a.dweight[i] += total;
  }
}

}  // namespace

template <typename T>
void run(const RmsNormForward<T>& a, Stream stream) {
  if (a.rows == 0) return;
  launch("rms_norm_forward", forward_kernel<T>, a.rows, stream, a);
}

template <typename T>
void run(const RmsNormBackward<T>& a, Stream stream) {
  if (a.rows == 0) return;
  if (a.dweight != nullptr) {
    launch("rms_norm_weight_gradient", weight_gradient_kernel<T>,
           blocks_of(a.features, kWarp), stream, a);
  }
  launch("rms_norm_input_gradient", input_gradient_kernel<T>, a.rows, stream, a);
}

template void run(const RmsNormForward<float>&, Stream);
template void run(const RmsNormForward<Bf16>&, Stream);
template void run(const RmsNormBackward<float>&, Stream);
template void run(const RmsNormBackward<Bf16>&, Stream);

}  // namespace longhaul::kernels::cuda
