#include "longhaul/ops/kernels/cuda/device.cuh"

namespace longhaul::kernels::cuda {
namespace {

/// One thread a pair of elements; `items` = tokens * heads * head_dim / 2.
template <typename T>
__global__ void rope_kernel(Rope<T> a, int64_t items) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (item >= items) return;
  const int64_t half = a.head_dim / 2;
  const int64_t d = item % half;
  const int64_t head = item / half % a.heads;
  const int64_t token = item / half / a.heads;
  const int64_t angle = a.position_ids[token] * half + d;
  const float c = a.cos[angle];
  const float s = a.sin[angle] * (a.inverse ? -1.0F : 1.0F);
  const T* from = a.x + token * a.x_token_stride + head * a.x_head_stride + d;
  T* to = a.y + token * a.y_token_stride + head * a.y_head_stride + d;
  const float x1 = to_float(from[0]);
  const float x2 = to_float(from[half]);
  assign(to[0], x1 * c - x2 * s);
  assign(to[half], x2 * c + x1 * s);
}

__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

template <typename T>
__global__ void swiglu_forward_kernel(SwigluForward<T> a, int64_t items) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (item >= items) return;
  const int64_t at = item / a.features * a.row_stride + item % a.features;
  const float g = to_float(a.gate[at]);
  assign(a.y[item], g * sigmoid(g) * to_float(a.up[at]));
}

template <typename T>
__global__ void swiglu_backward_kernel(SwigluBackward<T> a, int64_t items) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (item >= items) return;
  const int64_t at = item / a.features * a.row_stride + item % a.features;
  const int64_t d_at = item / a.features * a.d_row_stride + item % a.features;
  const float g = to_float(a.gate[at]);
  const float u = to_float(a.up[at]);
  const float d = to_float(a.dy[item]);
  const float s = sigmoid(g);
  assign(a.dgate[d_at], d * u * s * (1.0F + g * (1.0F - s)));
  assign(a.dup[d_at], d * g * s);
}

/// One thread an item.
template <typename Kernel>
void launch_items(const char* name, void (*kernel)(Kernel, int64_t), const Kernel& a,
                  int64_t items, Stream stream) {
  if (items == 0) return;
  launch(name, kernel, blocks_of(items, kBlock), stream, a, items);
}

}  // namespace

template <typename T>
void run(const Rope<T>& a, Stream stream) {
  launch_items("rope", rope_kernel<T>, a, a.tokens * a.heads * (a.head_dim / 2), stream);
}

template <typename T>
void run(const SwigluForward<T>& a, Stream stream) {
  launch_items("swiglu_forward", swiglu_forward_kernel<T>, a, a.rows * a.features,
               stream);
}

template <typename T>
void run(const SwigluBackward<T>& a, Stream stream) {
  launch_items("swiglu_backward", swiglu_backward_kernel<T>, a, a.rows * a.features,
               stream);
}

template void run(const Rope<float>&, Stream);
template void run(const Rope<Bf16>&, Stream);
template void run(const SwigluForward<float>&, Stream);
template void run(const SwigluForward<Bf16>&, Stream);
template void run(const SwigluBackward<float>&, Stream);
template void run(const SwigluBackward<Bf16>&, Stream);

}  // namespace longhaul::kernels::cuda
