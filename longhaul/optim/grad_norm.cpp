#include "longhaul/optim/grad_norm.h"

#include <algorithm>
#include <array>
#include <vector>

#include "longhaul/base/error.h"

namespace longhaul::optim {
namespace {

/// Running sums side by side: the order of addition is fixed, and vectors are possible.
constexpr int64_t kLanes = 16;

double to_double(float x) { return static_cast<double>(x); }
double to_double(uint16_t bf16) { return static_cast<double>(bf16_to_float(bf16)); }

template <typename T>
double block_sum(const T* data, int64_t count) {
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double x = to_double(data[i + lane]);
      lanes[static_cast<size_t>(lane)] += x * x;
    }
  }
  for (; i < count; ++i) {
    const double x = to_double(data[i]);
    lanes[static_cast<size_t>(i % kLanes)] += x * x;
  }
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <typename T>
double sum_typed(const T* data, int64_t count) {
  const int64_t blocks = (count + kNormBlock - 1) / kNormBlock;
  std::vector<double> partial(static_cast<size_t>(blocks));
  double* out = partial.data();
#pragma omp parallel for schedule(static) if (blocks > 1)
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * kNormBlock;
    out[b] = block_sum(data + begin, std::min(kNormBlock, count - begin));
  }
  double sum = 0.0;
  for (const double value : partial) sum += value;
  return sum;
}

}  // namespace

double sum_of_squares(const void* data, int64_t count, DType dtype) {
  LH_CHECK(dtype == DType::F32 || dtype == DType::BF16, "optim",
           "sum_of_squares of {}; gradients are F32 or BF16", dtype_name(dtype));
  if (dtype == DType::F32) return sum_typed(static_cast<const float*>(data), count);
  return sum_typed(static_cast<const uint16_t*>(data), count);
}

double clip_coefficient(double norm, double max_norm) {
  if (max_norm <= 0.0) return 1.0;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace longhaul::optim
