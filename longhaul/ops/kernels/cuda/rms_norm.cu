#include "longhaul/ops/kernels/cuda/device.cuh"

namespace longhaul::kernels::cuda {
namespace {

/// One block a row.
template <typename T>
__global__ void forward_kernel(const T* x, const T* residual, const T* weight, float eps,
                               int64_t features, T* h, T* y, float* inverse_rms) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * features;
  const T* normed = residual == nullptr ? x : h;
  float squares = 0.0F;
  for (int64_t i = threadIdx.x; i < features; i += kBlock) {
    if (residual != nullptr) {
      assign(h[start + i], to_float(x[start + i]) + to_float(residual[start + i]));
    }
    const float v = to_float(normed[start + i]);  // each thread reads what it wrote
    squares += v * v;
  }
  const float mean = block_combine(squares, Add()) / static_cast<float>(features);
  const float inverse = 1.0F / sqrtf(mean + eps);
  if (threadIdx.x == 0) inverse_rms[blockIdx.x] = inverse;
  for (int64_t i = threadIdx.x; i < features; i += kBlock) {
    const float normal = rounded<T>(to_float(normed[start + i]) * inverse);
    assign(y[start + i], to_float(weight[i]) * normal);
  }
}

/// One block a row.
template <typename T>
__global__ void input_gradient_kernel(const T* dy, const T* x, const float* inverse_rms,
                                      const T* weight, const T* dresidual,
                                      int64_t features, T* dx) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * features;
  const float inverse = inverse_rms[blockIdx.x];
  float dot = 0.0F;
  for (int64_t i = threadIdx.x; i < features; i += kBlock) {
    dot +=
        to_float(dy[start + i]) * to_float(weight[i]) * to_float(x[start + i]) * inverse;
  }
  const float mean = block_combine(dot, Add()) / static_cast<float>(features);
  for (int64_t i = threadIdx.x; i < features; i += kBlock) {
    const float normal = to_float(x[start + i]) * inverse;
    float d = inverse * (to_float(dy[start + i]) * to_float(weight[i]) - normal * mean);
    if (dresidual != nullptr) d += to_float(dresidual[start + i]);
    assign(dx[start + i], d);
  }
}

/// A block owns 32 neighbouring features and walks all rows, 8 at a time, so that each
/// sum has one fixed order.
template <typename T>
__global__ void weight_gradient_kernel(const T* dy, const T* x, const float* inverse_rms,
                                       int64_t rows, int64_t features, float* dweight) {
  constexpr int kRows = kBlock / kWarp;
  __shared__ float partial[kRows][kWarp];
  const int lane = threadIdx.x % kWarp;
  const int row = threadIdx.x / kWarp;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0.0F;
  if (i < features) {
    for (int64_t r = row; r < rows; r += kRows) {
      sum +=
          to_float(dy[r * features + i]) * to_float(x[r * features + i]) * inverse_rms[r];
    }
  }
  partial[row][lane] = sum;
  __syncthreads();
  if (row == 0 && i < features) {
    float total = partial[0][lane];
    for (int r = 1; r < kRows; ++r) total += partial[r][lane];
    dweight[i] += total;
  }
}

}  // namespace

template <typename T>
void rms_norm_forward(const T* x, const T* residual, const T* weight, double eps,
                      int64_t rows, int64_t features, T* h, T* y, float* inverse_rms,
                      Stream stream) {
  if (rows == 0) return;
  forward_kernel<<<grid_of(rows, 1), kBlock, 0, stream>>>(
      x, residual, weight, static_cast<float>(eps), features, h, y, inverse_rms);
  check_launch("rms_norm_forward");
}

template <typename T>
void rms_norm_backward(const T* dy, const T* x, const float* inverse_rms, const T* weight,
                       const T* dresidual, int64_t rows, int64_t features, T* dx,
                       float* dweight, Stream stream) {
  if (rows == 0) return;
  if (dweight != nullptr) {
    weight_gradient_kernel<<<grid_of(features, kWarp), kBlock, 0, stream>>>(
        dy, x, inverse_rms, rows, features, dweight);
    check_launch("rms_norm_weight_gradient");
  }
  input_gradient_kernel<<<grid_of(rows, 1), kBlock, 0, stream>>>(
      dy, x, inverse_rms, weight, dresidual, features, dx);
  check_launch("rms_norm_input_gradient");
}

template void rms_norm_forward(const float*, const float*, const float*, double, int64_t,
                               int64_t, float*, float*, float*, Stream);
template void rms_norm_forward(const Bf16*, const Bf16*, const Bf16*, double, int64_t,
                               int64_t, Bf16*, Bf16*, float*, Stream);
template void rms_norm_backward(const float*, const float*, const float*, const float*,
                                const float*, int64_t, int64_t, float*, float*, Stream);
template void rms_norm_backward(const Bf16*, const Bf16*, const float*, const Bf16*,
                                const Bf16*, int64_t, int64_t, Bf16*, float*, Stream);

}  // namespace longhaul::kernels::cuda
