#include "longhaul/optim/cuda/elements.cuh"
#include "longhaul/optim/grad_norm.h"

namespace longhaul::optim::cuda {
namespace {

/// Elements of a block of threads that are staged before their squares are added.
constexpr int kStaged = kBlock * kEach;
static_assert(kStaged % kSquareLanes == 0 && kNormBlock % kStaged == 0);

/// Elements in shared memory, of one series after another. Threads that write side by
/// side do not meet in a bank, nor do the lanes of all series that read.
template <int kSeries>
struct Stage {
  float of[kSeries][kEach][kBlock + 2];

  __device__ float& at(int series, int element) {
    return of[series][element % kEach][element / kEach];
  }
};

/// What a thread adds to a stage: the kEach elements from `i` on, of which those beside
/// [0, size) count as 0. form.at<N>(i, out) forms out[series][N].
template <typename Form>
__device__ void fill(const Form& form, int64_t i, int64_t size, bool aligned,
                     Stage<Form::kSeries>& stage) {
  const int place = static_cast<int>(threadIdx.x) * kEach;
  if (aligned && i >= 0 && i + kEach <= size) {
    float out[Form::kSeries][kEach];
    form.template at<kEach>(i, out);
    for (int k = 0; k < Form::kSeries; ++k) {
      for (int j = 0; j < kEach; ++j) stage.at(k, place + j) = out[k][j];
    }
    return;
  }
  for (int j = 0; j < kEach; ++j) {
    float out[Form::kSeries][1] = {};
    if (i + j >= 0 && i + j < size) form.template at<1>(i + j, out);
    for (int k = 0; k < Form::kSeries; ++k) stage.at(k, place + j) = out[k][0];
  }
}

/// A block of threads for each block of kNormBlock elements. All threads form elements,
/// and the first add their squares, each of one lane of one series in ascending order, as
/// SquareLanes does on a CPU: zeros beside the range change no sum. Two stages: while one
/// is added up, the other is filled.
template <typename Form>
__global__ void squares_kernel(Form whole, int64_t count, int lead, double* partial) {
  constexpr int kSeries = Form::kSeries;
  constexpr int kSums = kSeries * kSquareLanes;
  __shared__ Stage<kSeries> stages[2];
  __shared__ double lanes[kSums];
  const auto thread = static_cast<int>(threadIdx.x);
  const int64_t from = static_cast<int64_t>(blockIdx.x) * kNormBlock;
  const int64_t size = count - from < kNormBlock ? count - from : kNormBlock;
  const Form form = whole.from(from);
  const int before = lead > 0 ? lead : 0;
  double sum = 0.0;
  int now = 0;
  for (int64_t begin = -before; begin < size; begin += kStaged) {
    Stage<kSeries>& stage = stages[now];
    now = 1 - now;
    fill(form, begin + thread * kEach, size, lead >= 0, stage);
    __syncthreads();
    if (thread < kSums) {
      const int series = thread / kSquareLanes;
      const int first = (thread + before) % kSquareLanes;
      for (int i = first; i < kStaged; i += kSquareLanes) {
        const auto wide = static_cast<double>(stage.at(series, i));
        sum += wide * wide;
      }
    }
  }
  if (thread < kSums) lanes[thread] = sum;
  __syncthreads();
  if (thread >= kSeries) return;
  double total = 0.0;
  for (int i = 0; i < kSquareLanes; ++i) total += lanes[thread * kSquareLanes + i];
  partial[static_cast<int64_t>(blockIdx.x) * kSeries + thread] = total;
}

template <typename Form>
void enqueue_sums(const char* name, const Form& form, int64_t count, int lead,
                  double* partial, Stream stream) {
  if (count == 0) return;
  kernels::cuda::launch(name, squares_kernel<Form>,
                        kernels::cuda::blocks_of(count, kNormBlock), stream, form, count,
                        lead, partial);
}

template <typename T>
struct Squares {
  static constexpr int kSeries = 1;
  const T* x;

  __device__ Squares from(int64_t first) const { return {x + first}; }
  template <int N>
  __device__ void at(int64_t i, float (&out)[kSeries][N]) const {
    const auto in = load<N>(x + i);
    for (int j = 0; j < N; ++j) out[0][j] = widened(in.of[j]);
  }
};

/// LAMB's first pass: masters, and where the new moments will move them.
template <typename G, typename P, typename M, typename R>
struct LambMoments {
  static constexpr int kSeries = 2;
  const G* grad;
  const P* master;
  M *exp_avg, *exp_avg_sq;
  AdamWScalars s;
  float decay;
  R rounding;
  int64_t first = 0;  ///< element that counts as 0

  __device__ LambMoments from(int64_t begin) const {
    LambMoments next = *this;
    next.first = begin;
    return next;
  }
  template <int N>
  __device__ void at(int64_t own, float (&out)[kSeries][N]) const {
    const int64_t i = first + own;
    const auto g = load<N>(grad + i);
    const auto p = load<N>(master + i);
    auto m = load<N>(exp_avg + i);
    auto v = load<N>(exp_avg_sq + i);
    typename R::template Walk<N> walk(rounding, i);
    for (int j = 0; j < N; ++j) {
      const auto [one, two] =
          next_moments(widened(g.of[j]), widened(m.of[j]), widened(v.of[j]), s);
      walk.template assign<kRoundExpAvg>(m.of[j], one);
      walk.template assign<kRoundExpAvgSq>(v.of[j], two);
      walk.next();
      out[0][j] = widened(p.of[j]);
      out[1][j] = lamb_direction(out[0][j], widened(m.of[j]), widened(v.of[j]), s, decay);
    }
    store(exp_avg + i, m);
    store(exp_avg_sq + i, v);
  }
};

/// One block of threads, of which the first `series` add; kBlock sums are fetched at a
/// time.
__global__ void total_kernel(const double* partial, int64_t count, int series,
                             double* into) {
  __shared__ double fetched[kBlock];
  const auto thread = static_cast<int>(threadIdx.x);
  double sum = 0.0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    if (begin + thread < count) fetched[thread] = partial[begin + thread];
    __syncthreads();
    if (thread < series) {
      for (int i = thread; i < kBlock && begin + i < count; i += series) {
        sum += fetched[i];
      }
    }
    __syncthreads();
  }
  if (thread < series) into[thread] += sum;
}

}  // namespace

void enqueue_squares(const void* x, int64_t count, DType dtype, double* partial,
                     Stream stream) {
  with_type(dtype, [&]<typename T>(T*) {
    const Squares<T> squares{static_cast<const T*>(x)};
    enqueue_sums("squares", squares, count, lead_of(ToNearest(), squares.x), partial,
                 stream);
  });
}

void enqueue_lamb_moments(const AdamWRange& r, const AdamWScalars& s, float decay,
                          int64_t update, double* partial, Stream stream) {
  with_master(r, update, [&]<typename P, typename R>(P* master, const R& rounding) {
    with_type(r.grad_dtype, [&]<typename G>(G*) {
      with_type(r.moments_dtype, [&]<typename M>(M*) {
        const LambMoments<G, P, M, R> of{static_cast<const G*>(r.grad),
                                         master,
                                         static_cast<M*>(r.exp_avg),
                                         static_cast<M*>(r.exp_avg_sq),
                                         s,
                                         decay,
                                         rounding};
        enqueue_sums("lamb_moments", of, r.count,
                     lead_of(rounding, of.grad, of.master, of.exp_avg, of.exp_avg_sq),
                     partial, stream);
      });
    });
  });
}

void enqueue_total(const double* partial, int64_t blocks, int series, double* into,
                   Stream stream) {
  if (blocks == 0) return;
  kernels::cuda::launch("total_of_squares", total_kernel, 1, stream, partial,
                        blocks * series, series, into);
}

}  // namespace longhaul::optim::cuda
