#include "longhaul/cuda/kernels/device.cuh"

namespace longhaul::kernels::cuda {
namespace {

/// Returns the first index after `begin` at which `rows`, which are sorted, has another
/// value, or `end`.
__device__ int64_t end_of_row(const int64_t* rows, int64_t begin, int64_t end) {
  const int64_t row = rows[begin];
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    if (rows[middle] == row) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return end;
}

/// Adds gradients of tokens, sorted by row, to the rows of the table, with `across`
/// blocks for a token and N features for a thread. The blocks of the first token of a row
/// add all tokens of the row; the other blocks do nothing.
template <typename T, int N>
__global__ void embedding_gradient_kernel(EmbeddingGradient<T> a, int64_t across) {
  const int64_t begin = blockIdx.x / across;
  const int64_t row = a.rows[begin];
  const int64_t feature = (blockIdx.x % across * kBlock + threadIdx.x) * N;
  if (row < 0 || row >= a.table_rows || feature >= a.features) return;
  if (begin > 0 && a.rows[begin - 1] == row) return;
  const int64_t end = end_of_row(a.rows, begin, a.tokens);
  float* to = a.gradient + row * a.features + feature;
  auto sum = load<N>(to);
  for (int64_t i = begin; i < end; ++i) {
    const auto dy = load<N>(a.dy + a.order[i] * a.features + feature);
    for (int j = 0; j < N; ++j) sum.of[j] += to_float(dy.of[j]);
  }
  store(to, sum);
}

}  // namespace

template <typename T>
void enqueue(const EmbeddingGradient<T>& a, Stream stream) {
  if (a.tokens == 0 || a.features == 0) return;
  const bool wide = aligned(a.dy, a.gradient) && a.features % kWide<T> == 0;
  with_width<T>(wide, [&](auto n) {
    const int64_t across = blocks_of(a.features, kBlock * n);
    launch("embedding_gradient", embedding_gradient_kernel<T, n>, a.tokens * across,
           stream, a, across);
  });
}

LH_CUDA_RUN(EmbeddingGradient)

}  // namespace longhaul::kernels::cuda
