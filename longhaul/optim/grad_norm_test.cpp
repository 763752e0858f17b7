#include "longhaul/optim/kernels/grad_norm.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/random.h"

namespace longhaul::optim {
namespace {

std::vector<float> random_floats(size_t count) {
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i) {
    const auto bits = philox(7, i, 0);
    x[i] = normal_from_bits(bits[0], bits[1])[0] * std::exp2(float(bits[2] % 20) - 10.0F);
  }
  return x;
}

TEST(SumOfSquares, EqualsALongDoubleSumForAnyLength) {
  for (const size_t count : {0UL, 1UL, 15UL, 17UL, 65536UL, 65537UL, 300001UL}) {
    const auto x = random_floats(count);
    std::vector<uint16_t> half(count);
    long double full = 0;
    long double rounded = 0;
    for (size_t i = 0; i < count; ++i) {
      half[i] = format::float_to_bf16(x[i]);
      full += static_cast<long double>(x[i]) * x[i];
      rounded += static_cast<long double>(format::bf16_to_float(half[i])) *
                 format::bf16_to_float(half[i]);
    }
    const auto n = static_cast<int64_t>(count);
    const auto exact = static_cast<double>(full);
    EXPECT_NEAR(sum_of_squares(x.data(), n, format::DType::F32), exact, exact * 1e-14);
    EXPECT_NEAR(sum_of_squares(half.data(), n, format::DType::BF16),
                static_cast<double>(rounded), exact * 1e-14);
  }
}

TEST(SumOfSquares, IsBitwiseTheSameForAnyNumberOfThreads) {
  const auto x = random_floats(1000003);
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const double one = sum_of_squares(x.data(), 1000003, format::DType::F32);
  for (const int threads : {2, 3, 7}) {
    omp_set_num_threads(threads);
    EXPECT_EQ(sum_of_squares(x.data(), 1000003, format::DType::F32), one);
  }
  omp_set_num_threads(before);
}

TEST(SumOfSquares, IsTheSumOfItsBlocksInOrder) {
  const auto x = random_floats(3 * kNormBlock);
  double sum = 0.0;
  for (int64_t b = 0; b < 3; ++b) {
    sum += sum_of_squares(x.data() + b * kNormBlock, kNormBlock, format::DType::F32);
  }
  EXPECT_EQ(sum_of_squares(x.data(), 3 * kNormBlock, format::DType::F32), sum);
}

TEST(SumOfSquares, RefusesOtherTypes) {
  const int64_t x = 1;
  EXPECT_THROW(sum_of_squares(&x, 1, format::DType::I64), Error);
}

TEST(ClipCoefficient, IsThatOfTorch) {
  EXPECT_EQ(clip_coefficient(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_coefficient(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_LT(clip_coefficient(1.0, 1.0), 1.0);
  EXPECT_EQ(clip_coefficient(100.0, 0.0), 1.0);
}

}  // namespace
}  // namespace longhaul::optim
