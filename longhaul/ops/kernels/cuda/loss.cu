#include <cmath>

#include "longhaul/ops/kernels/cuda/device.cuh"

namespace longhaul::kernels::cuda {
namespace {

/// One block a row: maximum, sum, loss, and the gradient in place.
template <typename T>
__global__ void cross_entropy_kernel(T* logits, const int64_t* targets,
                                     int64_t vocabulary, float scale, float z_loss,
                                     bool want_gradient, float* cross_entropy,
                                     float* squared_lse) {
  T* row = logits + static_cast<int64_t>(blockIdx.x) * vocabulary;
  const int64_t target = targets[blockIdx.x];
  if (target < 0) {  // the same for all threads of the block
    if (threadIdx.x == 0) cross_entropy[blockIdx.x] = squared_lse[blockIdx.x] = 0.0F;
    if (!want_gradient) return;
    for (int64_t i = threadIdx.x; i < vocabulary; i += kBlock) assign(row[i], 0.0F);
    return;
  }
  float most = -INFINITY;
  for (int64_t i = threadIdx.x; i < vocabulary; i += kBlock) {
    most = fmaxf(most, to_float(row[i]));
  }
  most = block_combine(most, Larger());
  float sum = 0.0F;
  for (int64_t i = threadIdx.x; i < vocabulary; i += kBlock) {
    sum += expf(to_float(row[i]) - most);
  }
  const float lse = most + logf(block_combine(sum, Add()));
  if (threadIdx.x == 0) {
    cross_entropy[blockIdx.x] = lse - to_float(row[target]);
    squared_lse[blockIdx.x] = lse * lse;
  }
  if (!want_gradient) return;
  __syncthreads();  // the target's logit is read before it is overwritten
  const float factor = scale * (1.0F + 2.0F * z_loss * lse);
  for (int64_t i = threadIdx.x; i < vocabulary; i += kBlock) {
    const float softmax = expf(to_float(row[i]) - lse);
    assign(row[i], factor * softmax - (i == target ? scale : 0.0F));
  }
}

}  // namespace

template <typename T>
void cross_entropy(T* logits, const int64_t* targets, int64_t rows, int64_t vocabulary,
                   double scale, double z_loss, bool want_gradient, float* cross_entropy,
                   float* squared_lse, Stream stream) {
  if (rows == 0) return;
  cross_entropy_kernel<<<grid_of(rows, 1), kBlock, 0, stream>>>(
      logits, targets, vocabulary, static_cast<float>(scale), static_cast<float>(z_loss),
      want_gradient, cross_entropy, squared_lse);
  check_launch("cross_entropy");
}

template void cross_entropy(float*, const int64_t*, int64_t, int64_t, double, double,
                            bool, float*, float*, Stream);
template void cross_entropy(Bf16*, const int64_t*, int64_t, int64_t, double, double, bool,
                            float*, float*, Stream);

}  // namespace longhaul::kernels::cuda
