#include <cmath>

#include "longhaul/cuda/kernels/device.cuh"

namespace longhaul::kernels::cuda {
namespace {

struct RowSum {
  float maximum;
  float sum_exp;  ///< sum of exp(logit - maximum)
};

/// Computes the sum over a row by a block in one pass: a thread scales its sum when its
/// maximum grows.
template <int N, typename T>
__device__ RowSum row_sum(const T* row, int64_t vocabulary) {
  float most = -INFINITY;
  float sum = 0.0F;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < vocabulary;
       i += kBlock * N) {
    const auto in = load<N>(row + i);
    float larger = most;
    for (int j = 0; j < N; ++j) larger = fmaxf(larger, to_float(in.of[j]));
    if (larger > most) {
      sum *= expf(most - larger);
      most = larger;
    }
    // If `most` is minus infinity, all logits so far are minus infinity or NaN, and a NaN
    // must stay NaN.
    const float base = most > -INFINITY ? most : 0.0F;
    for (int j = 0; j < N; ++j) sum += expf(to_float(in.of[j]) - base);
  }
  const float maximum = block_combine(most, Larger());
  if (most > -INFINITY) sum *= expf(most - maximum);
  return {maximum, block_combine(sum, Add())};
}

/// Computes row = scale * (factor * softmax - onehot(target)), where `factor` accounts
/// for the loss of lse^2.
template <int N, typename T>
__device__ void row_gradient(T* row, int64_t vocabulary, int64_t target, float lse,
                             float scale, float z_loss) {
  const float factor = scale * (1.0F + 2.0F * z_loss * lse);
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < vocabulary;
       i += kBlock * N) {
    auto logits = load<N>(row + i);
    for (int j = 0; j < N; ++j) {
      const float softmax = expf(to_float(logits.of[j]) - lse);
      assign(logits.of[j], factor * softmax - (i + j == target ? scale : 0.0F));
    }
    store(row + i, logits);
  }
}

template <int N, typename T>
__device__ void row_of_zeros(T* row, int64_t vocabulary) {
  Pack<T, N> zeros;
  for (int j = 0; j < N; ++j) assign(zeros.of[j], 0.0F);
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < vocabulary;
       i += kBlock * N) {
    store(row + i, zeros);
  }
}

/// Computes the loss of one row in a block. The gradient replaces the row's logits.
template <typename T, int N>
__global__ void cross_entropy_kernel(CrossEntropy<T> a) {
  T* row = a.logits + static_cast<int64_t>(blockIdx.x) * a.vocabulary;
  const int64_t target = a.targets[blockIdx.x];
  if (target < 0) {  // uniform over the threads of the block
    if (threadIdx.x == 0) a.cross_entropy[blockIdx.x] = a.squared_lse[blockIdx.x] = 0.0F;
    if (a.want_gradient) row_of_zeros<N>(row, a.vocabulary);
    return;
  }
  const RowSum all = row_sum<N>(row, a.vocabulary);
  const float lse = all.maximum + logf(all.sum_exp);
  if (threadIdx.x == 0) {
    a.cross_entropy[blockIdx.x] = lse - to_float(row[target]);
    a.squared_lse[blockIdx.x] = lse * lse;
  }
  if (!a.want_gradient) return;
  __syncthreads();  // the target's logit is read before it is overwritten
  row_gradient<N>(row, a.vocabulary, target, lse, static_cast<float>(a.scale),
                  static_cast<float>(a.z_loss));
}

/// Computes the statistics of one row in a block.
template <typename T, int N>
__global__ void statistics_kernel(CrossEntropyStatistics<T> a) {
  const T* row = a.logits + static_cast<int64_t>(blockIdx.x) * a.vocabulary;
  const RowSum all = row_sum<N>(row, a.vocabulary);
  if (threadIdx.x != 0) return;
  const int64_t target = a.targets[blockIdx.x];
  const bool here = target >= 0 && target < a.vocabulary;
  a.maximum[blockIdx.x] = all.maximum;
  a.sum_exp[blockIdx.x] = all.sum_exp;
  a.picked[blockIdx.x] = here ? to_float(row[target]) : 0.0F;
}

/// Replaces the logits of one row by their gradient, in a block.
template <typename T, int N>
__global__ void gradient_kernel(CrossEntropyGradient<T> a) {
  T* row = a.logits + static_cast<int64_t>(blockIdx.x) * a.vocabulary;
  const float scale = a.row_scale[blockIdx.x];
  if (scale == 0.0F) {  // uniform over the threads of the block
    row_of_zeros<N>(row, a.vocabulary);
    return;
  }
  row_gradient<N>(row, a.vocabulary, a.targets[blockIdx.x], a.lse[blockIdx.x], scale,
                  static_cast<float>(a.z_loss));
}

template <typename T>
bool wide_rows(const T* logits, int64_t vocabulary) {
  return aligned(logits) && vocabulary % kWide<T> == 0;
}

}  // namespace

template <typename T>
void enqueue(const CrossEntropy<T>& a, Stream stream) {
  if (a.rows == 0) return;
  with_width<T>(wide_rows(a.logits, a.vocabulary), [&](auto n) {
    launch("cross_entropy", cross_entropy_kernel<T, n>, a.rows, stream, a);
  });
}

template <typename T>
void enqueue(const CrossEntropyStatistics<T>& a, Stream stream) {
  if (a.rows == 0) return;
  with_width<T>(wide_rows(a.logits, a.vocabulary), [&](auto n) {
    launch("cross_entropy_statistics", statistics_kernel<T, n>, a.rows, stream, a);
  });
}

template <typename T>
void enqueue(const CrossEntropyGradient<T>& a, Stream stream) {
  if (a.rows == 0) return;
  with_width<T>(wide_rows(a.logits, a.vocabulary), [&](auto n) {
    launch("cross_entropy_gradient", gradient_kernel<T, n>, a.rows, stream, a);
  });
}

LH_CUDA_RUN(CrossEntropy)
LH_CUDA_RUN(CrossEntropyStatistics)
LH_CUDA_RUN(CrossEntropyGradient)

}  // namespace longhaul::kernels::cuda
