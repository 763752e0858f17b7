#include <cmath>

#include "longhaul/ops/kernels/cuda/device.cuh"

namespace longhaul::kernels::cuda {
namespace {

/// One block a row: maximum, sum, loss, and the gradient in place.
template <typename T>
__global__ void cross_entropy_kernel(CrossEntropy<T> a) {
  const int64_t vocabulary = a.vocabulary;
  T* row = a.logits + static_cast<int64_t>(blockIdx.x) * vocabulary;
  const int64_t target = a.targets[blockIdx.x];
  if (target < 0) {  // the same for all threads of the block
    if (threadIdx.x == 0) a.cross_entropy[blockIdx.x] = a.squared_lse[blockIdx.x] = 0.0F;
    if (!a.want_gradient) return;
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
    a.cross_entropy[blockIdx.x] = lse - to_float(row[target]);
    a.squared_lse[blockIdx.x] = lse * lse;
  }
  if (!a.want_gradient) return;
  __syncthreads();  // the target's logit is read before it is overwritten
  const auto scale = static_cast<float>(a.scale);
  const float factor = scale * (1.0F + 2.0F * static_cast<float>(a.z_loss) * lse);
  for (int64_t i = threadIdx.x; i < vocabulary; i += kBlock) {
    const float softmax = expf(to_float(row[i]) - lse);
    assign(row[i], factor * softmax - (i == target ? scale : 0.0F));
  }
}

}  // namespace

template <typename T>
void run(const CrossEntropy<T>& a, Stream stream) {
  if (a.rows == 0) return;
  launch("cross_entropy", cross_entropy_kernel<T>, a.rows, stream, a);
}

template void run(const CrossEntropy<float>&, Stream);
template void run(const CrossEntropy<Bf16>&, Stream);

}  // namespace longhaul::kernels::cuda
