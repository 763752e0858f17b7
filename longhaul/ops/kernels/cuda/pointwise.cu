#include "longhaul/ops/kernels/cuda/device.cuh"

namespace longhaul::kernels::cuda {
namespace {

/// One thread a pair of elements; `items` = tokens * heads * head_dim / 2.
template <typename T>
__global__ void rope_kernel(const T* x, int64_t x_token_stride, int64_t x_head_stride,
                            RopeShape shape, const float* cos, const float* sin,
                            const int32_t* position_ids, float direction, T* y,
                            int64_t y_token_stride, int64_t y_head_stride,
                            int64_t items) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (item >= items) return;
  const int64_t half = shape.head_dim / 2;
  const int64_t d = item % half;
  const int64_t head = item / half % shape.heads;
  const int64_t token = item / half / shape.heads;
  const int64_t angle = position_ids[token] * half + d;
  const float c = cos[angle];
  const float s = sin[angle] * direction;
  const T* from = x + token * x_token_stride + head * x_head_stride + d;
  T* to = y + token * y_token_stride + head * y_head_stride + d;
  const float x1 = to_float(from[0]);
  const float x2 = to_float(from[half]);
  assign(to[0], x1 * c - x2 * s);
  assign(to[half], x2 * c + x1 * s);
}

__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

template <typename T>
__global__ void swiglu_forward_kernel(const T* gate, const T* up, int64_t row_stride,
                                      int64_t features, int64_t items, T* y) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (item >= items) return;
  const int64_t at = item / features * row_stride + item % features;
  const float g = to_float(gate[at]);
  assign(y[item], g * sigmoid(g) * to_float(up[at]));
}

template <typename T>
__global__ void swiglu_backward_kernel(const T* dy, const T* gate, const T* up,
                                       int64_t row_stride, int64_t features,
                                       int64_t items, T* dgate, T* dup,
                                       int64_t d_row_stride) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (item >= items) return;
  const int64_t at = item / features * row_stride + item % features;
  const int64_t d_at = item / features * d_row_stride + item % features;
  const float g = to_float(gate[at]);
  const float u = to_float(up[at]);
  const float d = to_float(dy[item]);
  const float s = sigmoid(g);
  assign(dgate[d_at], d * u * s * (1.0F + g * (1.0F - s)));
  assign(dup[d_at], d * g * s);
}

}  // namespace

template <typename T>
void rope(const T* x, int64_t x_token_stride, int64_t x_head_stride,
          const RopeShape& shape, const float* cos, const float* sin,
          const int32_t* position_ids, bool inverse, T* y, int64_t y_token_stride,
          int64_t y_head_stride, Stream stream) {
  const int64_t items = shape.tokens * shape.heads * (shape.head_dim / 2);
  if (items == 0) return;
  rope_kernel<<<grid_of(items, kBlock), kBlock, 0, stream>>>(
      x, x_token_stride, x_head_stride, shape, cos, sin, position_ids,
      inverse ? -1.0F : 1.0F, y, y_token_stride, y_head_stride, items);
  check_launch("rope");
}

template <typename T>
void swiglu_forward(const T* gate, const T* up, int64_t row_stride, int64_t rows,
                    int64_t features, T* y, Stream stream) {
  const int64_t items = rows * features;
  if (items == 0) return;
  swiglu_forward_kernel<<<grid_of(items, kBlock), kBlock, 0, stream>>>(
      gate, up, row_stride, features, items, y);
  check_launch("swiglu_forward");
}

template <typename T>
void swiglu_backward(const T* dy, const T* gate, const T* up, int64_t row_stride,
                     int64_t rows, int64_t features, T* dgate, T* dup,
                     int64_t d_row_stride, Stream stream) {
  const int64_t items = rows * features;
  if (items == 0) return;
  swiglu_backward_kernel<<<grid_of(items, kBlock), kBlock, 0, stream>>>(
      dy, gate, up, row_stride, features, items, dgate, dup, d_row_stride);
  check_launch("swiglu_backward");
}

template void rope(const float*, int64_t, int64_t, const RopeShape&, const float*,
                   const float*, const int32_t*, bool, float*, int64_t, int64_t, Stream);
template void rope(const Bf16*, int64_t, int64_t, const RopeShape&, const float*,
                   const float*, const int32_t*, bool, Bf16*, int64_t, int64_t, Stream);
template void swiglu_forward(const float*, const float*, int64_t, int64_t, int64_t,
                             float*, Stream);
template void swiglu_forward(const Bf16*, const Bf16*, int64_t, int64_t, int64_t, Bf16*,
                             Stream);
template void swiglu_backward(const float*, const float*, const float*, int64_t, int64_t,
                              int64_t, float*, float*, int64_t, Stream);
template void swiglu_backward(const Bf16*, const Bf16*, const Bf16*, int64_t, int64_t,
                              int64_t, Bf16*, Bf16*, int64_t, Stream);

}  // namespace longhaul::kernels::cuda
