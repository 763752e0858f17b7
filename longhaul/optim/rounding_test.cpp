#include "longhaul/optim/kernels/rounding.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "longhaul/optim/kernels/lamb.h"
#include "tests/support/range_updates.h"

namespace longhaul::optim {
namespace {

/// Six standard deviations: a right program fails with probability 2e-9.
constexpr double kSigmas = 6.0;

struct RoundedState {
  std::vector<float> grad;
  std::vector<uint16_t> weight, m, v;
  Rounding rounding;
  AdamWRange range() {
    return {.count = static_cast<int64_t>(weight.size()),
            .grad = grad.data(),
            .master = weight.data(),
            .exp_avg = m.data(),
            .exp_avg_sq = v.data(),
            .moments_dtype = format::DType::BF16,
            .weight = weight.data(),
            .weight_dtype = format::DType::BF16,
            .rounding = &rounding};
  }
};

/// Returns the state of a whole tensor of one dim, with equal weights and equal
/// gradients.
RoundedState filled(size_t count, float weight, float grad, uint64_t key = 1) {
  const auto n = static_cast<int64_t>(count);
  return {
      std::vector<float>(count, grad),
      std::vector<uint16_t>(count, format::float_to_bf16(weight)),
      std::vector<uint16_t>(count),
      std::vector<uint16_t>(count),
      {key, element_place(format::TensorSlice::whole("w", {n}, format::DType::BF16), 0)}};
}

/// Expects that the values are two neighbours in bf16, and that their mean lies within
/// kSigmas standard deviations of `expected`.
void expect_mean(const std::vector<uint16_t>& values, double expected) {
  double sum = 0.0;
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  for (const uint16_t v : values) {
    const double x = format::bf16_to_float(v);
    sum += x;
    low = std::min(low, x);
    high = std::max(high, x);
  }
  ASSERT_LT(low, high) << "nothing was rounded at random";
  ASSERT_LE(high - low, 0.0079 * std::abs(expected)) << "no neighbours";
  const auto n = static_cast<double>(values.size());
  const double share = (expected - low) / (high - low);
  const double sigma = (high - low) * std::sqrt(share * (1.0 - share) / n);
  EXPECT_NEAR(sum / n, expected, kSigmas * sigma);
  EXPECT_LT(sigma, 1e-5 * std::abs(expected)) << "a bound that proves nothing";
}

constexpr AdamWStep kRoundedStep{.beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .lr = 1e-3,
                                 .weight_decay = 0.1,
                                 .update = 1};

TEST(Rounding, OfWeightsAndBothMomentsHasTheMeanOfTheExactValue) {
  const size_t count = size_t{1} << 20;
  for (const float weight : {1.0F, -0.171875F, 3.0F}) {
    RoundedState s = filled(count, weight, 0.3F);
    adamw_update(s.range(), kRoundedStep);
    expect_mean(s.m, 0.1F * 0.3F);
    expect_mean(s.v, static_cast<double>(0.001F) * 0.3F * 0.3F);
    // With exact moments the first update is lr for any gradient.
    expect_mean(s.weight, static_cast<double>(weight) * (1.0 - 1e-4) - 1e-3);
  }
}

TEST(Rounding, OfLambsWeightsHasTheMeanOfTheExactValue) {
  RoundedState s = filled(size_t{1} << 20, 1.0F, 0.3F);
  lamb_moments(s.range(), kRoundedStep);
  expect_mean(s.m, 0.1F * 0.3F);
  double mean = 0.0;
  for (size_t i = 0; i < s.m.size(); ++i) {
    const double m = format::bf16_to_float(s.m[i]) / (1.0 - 0.9);
    const double v = format::bf16_to_float(s.v[i]) / (1.0 - 0.999);
    mean += 1.0 - 1e-3 * (m / (std::sqrt(v) + 1e-8) + 0.1);
  }
  lamb_apply(s.range(), kRoundedStep);
  expect_mean(s.weight, mean / static_cast<double>(s.m.size()));
}

TEST(Rounding, KeepsUpdatesThatTheNearestWouldLose) {
  // Each update is a fortieth of the distance to the next bf16.
  RoundedState s = filled(size_t{1} << 16, 1.0F, 0.0F);
  AdamWStep step = kRoundedStep;
  step.lr = 1e-4;
  step.weight_decay = 1.0;
  double expected = 1.0;
  for (step.update = 1; step.update <= 200; ++step.update) {
    adamw_update(s.range(), step);
    expected *= 1.0 - 1e-4;
  }
  double sum = 0.0;
  for (const uint16_t w : s.weight) sum += format::bf16_to_float(w);
  // The bound is that of a walk of 200 steps. Each step has a standard deviation of at
  // most half a distance of 2^-8.
  const double sigma = 0x1p-9 * std::sqrt(200.0) / 256.0;
  EXPECT_NEAR(sum / 65536.0, expected, kSigmas * sigma);
  EXPECT_EQ(format::bf16_to_float(format::float_to_bf16(1.0F * (1.0F - 1e-4F))), 1.0F);
}

/// Returns how far bit `bit` of the random bits of a and of b (`shift` elements later) is
/// from independent, in standard deviations.
double correlation(const Rounding& a, RoundingOf of_a, int64_t update_a,
                   const Rounding& b, RoundingOf of_b, int64_t update_b, int64_t shift,
                   int bit) {
  const int64_t count = 1 << 14;
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t x = rounding_bits(a, of_a, update_a, i) >> bit;
    const uint32_t y = rounding_bits(b, of_b, update_b, i + shift) >> bit;
    sum += ((x ^ y) & 1U) != 0 ? -1 : 1;
  }
  return static_cast<double>(sum) / std::sqrt(static_cast<double>(count));
}

TEST(Rounding, BitsOfOthersAreIndependent) {
  const Rounding w{rounding_key(7, "w"), {}};
  const Rounding x{rounding_key(7, "x"), {}};
  const Rounding seed{rounding_key(8, "w"), {}};
  for (const int bit : {0, 7, 15}) {
    for (const int64_t shift : {1, 2, 16, 1024, 4096}) {
      EXPECT_LT(std::abs(correlation(w, kRoundMaster, 5, w, kRoundMaster, 5, shift, bit)),
                kSigmas)
          << shift;
    }
    const auto other = [&](const Rounding& b, RoundingOf of, int64_t update) {
      return std::abs(correlation(w, kRoundMaster, 5, b, of, update, 0, bit));
    };
    EXPECT_LT(other(w, kRoundMaster, 6), kSigmas);
    EXPECT_LT(other(w, kRoundExpAvg, 5), kSigmas);
    EXPECT_LT(other(w, kRoundExpAvgSq, 5), kSigmas);
    EXPECT_LT(other(x, kRoundMaster, 5), kSigmas);
    EXPECT_LT(other(seed, kRoundMaster, 5), kSigmas);
    EXPECT_GT(other(w, kRoundMaster, 5), kSigmas) << "the same are the same";
  }
}

TEST(Rounding, FollowsItsDefinitionAcrossThe32BitsOfANumber) {
  RoundedState s = filled(1000, 1.0F, 0.0F, rounding_key(3, "w"));
  s.rounding.place.first = (int64_t{5} << 32) - 500;
  AdamWStep step = kRoundedStep;
  step.update = 9;
  step.weight_decay = 1.3;
  adamw_update(s.range(), step);
  const float exact = 1.0F * static_cast<float>(1.0 - 1e-3 * 1.3);
  int up = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const uint32_t random =
        rounding_bits(s.rounding, kRoundMaster, 9, s.rounding.place.first + i);
    const uint32_t bits = std::bit_cast<uint32_t>(exact) + random;
    ASSERT_EQ(s.weight[static_cast<size_t>(i)], bits >> 16) << i;
    up += s.weight[static_cast<size_t>(i)] == format::float_to_bf16(1.0F) ? 1 : 0;
  }
  EXPECT_GT(up, 500);
  EXPECT_LT(up, 900);
}

TEST(Rounding, InstructionSetsAndThreadCountsGiveTheSameBits) {
  const int before = omp_get_max_threads();
  const size_t count = 3 * 16384 + 13;
  RoundedState reference = filled(count, 0.7F, 0.3F);
  reference.rounding.place = {5, 77, 300, 40};
  RoundedState start = reference;
  omp_set_num_threads(1);
  adamw_update(reference.range(), kRoundedStep, system::Isa::Avx2);
  for (const system::Isa isa : {system::Isa::Avx2, system::Isa::Avx512}) {
    if (isa > system::best_isa()) continue;
    for (const int threads : {1, 2, 5}) {
      RoundedState other = start;
      omp_set_num_threads(threads);
      adamw_update(other.range(), kRoundedStep, isa);
      EXPECT_EQ(other.weight, reference.weight);
      EXPECT_EQ(other.m, reference.m);
      EXPECT_EQ(other.v, reference.v);
    }
  }
  omp_set_num_threads(before);
}

TEST(Rounding, LeavesWhatIsExactInfiniteOrNotANumber) {
  for (const float x : {1.0F, -0.0F, HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
    RoundedState s = filled(300, x, 0.0F);
    AdamWStep step = kRoundedStep;
    step.weight_decay = 0.0;
    lamb_apply(s.range(), step);
    for (const uint16_t w : s.weight) ASSERT_EQ(w, format::float_to_bf16(x));
  }
}

TEST(ElementPlace, NumbersTheElementsOfTheWholeTensor) {
  // Numbers elements of slices of a tensor [4, 6, 5]: the whole tensor, rows, a part of
  // the middle dim, and columns.
  const auto numbers = [](const format::TensorSlice& slice, int64_t begin,
                          int64_t count) {
    const ElementPlace place = element_place(slice, begin);
    std::vector<int64_t> out;
    for (int64_t j = begin; j < begin + count; ++j) {
      out.push_back(j / place.row * place.stride + place.first + j % place.row);
    }
    return out;
  };
  const std::vector<int64_t> shape{4, 6, 5};
  const auto cut = [&](std::vector<int64_t> offset, std::vector<int64_t> extent) {
    return format::TensorSlice{"w", shape, format::DType::BF16, std::move(offset),
                               std::move(extent)};
  };
  EXPECT_EQ(numbers(cut({0, 0, 0}, {4, 6, 5}), 7, 3), (std::vector<int64_t>{7, 8, 9}));
  EXPECT_EQ(numbers(cut({1, 0, 0}, {2, 6, 5}), 29, 2), (std::vector<int64_t>{59, 60}));
  EXPECT_EQ(numbers(cut({0, 2, 0}, {4, 2, 5}), 9, 2), (std::vector<int64_t>{19, 40}));
  EXPECT_EQ(numbers(cut({0, 0, 3}, {4, 6, 2}), 1, 2), (std::vector<int64_t>{4, 8}));
  EXPECT_ANY_THROW(element_place(cut({0, 2, 3}, {4, 2, 2}), 0));
}

}  // namespace
}  // namespace longhaul::optim
