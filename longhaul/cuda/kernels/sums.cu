#include <algorithm>

#include "longhaul/cuda/kernels/elements.cuh"
#include "longhaul/optim/kernels/grad_norm.h"

namespace longhaul::optim::cuda {
namespace {

/// The number of elements that a block of threads stages before their squares are added.
constexpr int kStaged = kBlock * kEach;
static_assert(kStaged % kSquareLanes == 0 && kNormBlock % kStaged == 0);

/// A stage: elements in shared memory, one series after another. Neither threads that
/// write side by side nor the lanes that read have bank conflicts.
template <int kSeries>
struct Stage {
  float of[kSeries][kEach][kBlock + 2];

  __device__ float& at(int series, int element) {
    return of[series][element % kEach][element / kEach];
  }
};

/// Writes the elements of a thread to a stage: kEach elements from `i` on, where elements
/// outside of [0, size) are 0. form.at<N>(i, out) forms out[series][N].
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

/// Adds up squares, with a block of threads for each block of kNormBlock elements. All
/// threads fill a stage. The first threads add squares, each for one lane of one series
/// in ascending order, as SquareLanes does on a CPU; zeros outside of the range change no
/// sum. While one of the two stages is added up, the other is filled.
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

/// The first pass of LAMB, which forms masters and the directions in which the new
/// moments will move the masters.
template <typename G, typename P, typename M, typename R>
struct LambMoments {
  static constexpr int kSeries = 2;
  const G* grad;
  const P* master;
  M *exp_avg, *exp_avg_sq;
  AdamWScalars s;
  float decay;
  R rounding;
  int64_t first = 0;  ///< the element that at() counts as 0

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

/// Adds the sums of each of `series` series, which lie side by side in `partial`, to
/// `into`, with one thread for a series. The block fetches kBlock sums at a time.
__device__ void add_totals(const double* partial, int64_t count, int series,
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

__global__ void total_kernel(const double* partial, int64_t count, int series,
                             double* into) {
  add_totals(partial, count, series, into);
}

/// The parts that one launch adds, as many as the parameters of a kernel hold. No two
/// parts have the same `into`.
struct SquaresTable {
  static constexpr int kMost = 96;

  SquaresRange parts[kMost];
  int64_t first_block[kMost];  ///< index among the blocks of all parts
  int64_t blocks = 0;
  int size = 0;

  /// Returns the part that a block belongs to.
  __device__ int part_of(int64_t block) const {
    int from = 0;
    for (int to = size; to - from > 1;) {
      const int middle = (from + to) / 2;
      (first_block[middle] <= block ? from : to) = middle;
    }
    return from;
  }
};
static_assert(sizeof(SquaresTable) <= 4000, "a kernel's parameters have 4 KB");

/// Returns the sum of squares of one lane of `size` elements. Many loads are in flight,
/// since the time for a block of elements is the time of one lane, and small models have
/// few blocks.
template <typename T>
__device__ double lane_sum(const T* x, int64_t size, int lane) {
  constexpr int kAhead = 16;
  double sum = 0.0;
  int64_t i = lane;
  for (; i + (kAhead - 1) * kSquareLanes < size; i += kAhead * kSquareLanes) {
    T in[kAhead];
    for (int j = 0; j < kAhead; ++j) in[j] = x[i + j * kSquareLanes];
    for (int j = 0; j < kAhead; ++j) {
      const auto wide = static_cast<double>(widened(in[j]));
      sum += wide * wide;
    }
  }
  for (; i < size; i += kSquareLanes) {
    const auto wide = static_cast<double>(widened(x[i]));
    sum += wide * wide;
  }
  return sum;
}

/// Adds up the squares of parts, with kSquareLanes threads for a block of kNormBlock
/// elements; each thread is a lane.
template <typename T>
__global__ void squares_of_parts_kernel(const __grid_constant__ SquaresTable table,
                                        double* partial) {
  const int lane = static_cast<int>(threadIdx.x) % kSquareLanes;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * (kBlock / kSquareLanes) +
                        static_cast<int>(threadIdx.x) / kSquareLanes;
  double sum = 0.0;
  if (block < table.blocks) {
    const int part = table.part_of(block);
    const int64_t from = (block - table.first_block[part]) * kNormBlock;
    const int64_t left = table.parts[part].count - from;
    sum = lane_sum(static_cast<const T*>(table.parts[part].x) + from,
                   left < kNormBlock ? left : kNormBlock, lane);
  }
  double total = 0.0;
  for (int i = 0; i < kSquareLanes; ++i) {
    total += __shfl_sync(0xffffffffU, sum, i, kSquareLanes);
  }
  if (lane == 0 && block < table.blocks) partial[block] = total;
}

/// Adds up the sums of parts, with one block of threads for each part.
__global__ void totals_of_parts_kernel(const __grid_constant__ SquaresTable table,
                                       const double* partial) {
  const SquaresRange& part = table.parts[blockIdx.x];
  add_totals(partial + table.first_block[blockIdx.x], norm_blocks(part.count), 1,
             part.into);
}

void enqueue_table(const SquaresTable& table, format::DType dtype, double* partial,
                   Stream stream) {
  if (table.blocks == 0) return;
  with_type(dtype, [&]<typename T>(T*) {
    kernels::cuda::launch("squares", squares_of_parts_kernel<T>,
                          kernels::cuda::blocks_of(table.blocks, kBlock / kSquareLanes),
                          stream, table, partial);
  });
  kernels::cuda::launch("totals_of_squares", totals_of_parts_kernel, table.size, stream,
                        table, partial);
}

}  // namespace

void enqueue_squares(std::span<const SquaresRange> parts, format::DType dtype,
                     double* partial, Stream stream) {
  SquaresTable table;
  const auto run = [&] {
    enqueue_table(table, dtype, partial, stream);
    partial += table.blocks;
    table.blocks = table.size = 0;
  };
  for (const SquaresRange& part : parts) {
    if (part.count == 0) continue;
    const SquaresRange* const begin = table.parts;
    const bool again =
        std::any_of(begin, begin + table.size,
                    [&](const SquaresRange& other) { return other.into == part.into; });
    if (again || table.size == SquaresTable::kMost) run();
    table.parts[table.size] = part;
    table.first_block[table.size++] = table.blocks;
    table.blocks += norm_blocks(part.count);
  }
  run();
}

void enqueue_lamb_moments(const AdamWRange& r, const AdamWScalars& s, float decay,
                          int64_t update, double* partial, Stream stream) {
  if (r.count == 0) return;
  with_master(r, [&]<typename P>(P* master) {
    const auto rounding = rounding_for<P>(r, update);
    using R = std::remove_const_t<decltype(rounding)>;
    with_type(r.grad_dtype, [&]<typename G>(G*) {
      with_type(r.moments_dtype, [&]<typename M>(M*) {
        using Form = LambMoments<G, P, M, R>;
        const Form of{static_cast<const G*>(r.grad),
                      master,
                      static_cast<M*>(r.exp_avg),
                      static_cast<M*>(r.exp_avg_sq),
                      s,
                      decay,
                      rounding};
        kernels::cuda::launch(
            "lamb_moments", squares_kernel<Form>, norm_blocks(r.count), stream, of,
            r.count, lead_of(rounding, of.grad, of.master, of.exp_avg, of.exp_avg_sq),
            partial);
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
