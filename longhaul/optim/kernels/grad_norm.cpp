#include "longhaul/optim/kernels/grad_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/optim/kernels/elements.h"

namespace longhaul::optim {
namespace {

template <typename T>
double sum_typed(const T* data, int64_t count) {
  std::vector<double> partial(static_cast<size_t>(norm_blocks(count)));
  double* out = partial.data();
  for_blocks(count, kNormBlock, [=](int64_t begin, int64_t end) {
    SquareLanes lanes;
    lanes.add(data + begin, end - begin);
    out[begin / kNormBlock] = lanes.sum();
  });
  double sum = 0.0;
  for (const double value : partial) sum += value;
  return sum;
}

}  // namespace

double sum_of_squares(const void* data, int64_t count, format::DType dtype) {
  LH_CHECK(dtype == format::DType::F32 || dtype == format::DType::BF16, "optim",
           "sum_of_squares of {}; gradients are F32 or BF16", format::dtype_name(dtype));
  if (dtype == format::DType::F32)
    return sum_typed(static_cast<const float*>(data), count);
  return sum_typed(static_cast<const uint16_t*>(data), count);
}

double norm_of_sums(std::span<const double> squares) {
  double total = 0.0;
  for (const double sum : squares) total += sum;
  return std::sqrt(total);
}

double clip_coefficient(double norm, double max_norm) {
  if (max_norm <= 0.0) return 1.0;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace longhaul::optim
