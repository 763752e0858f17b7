#include "longhaul/optim/kernels/lamb.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <vector>

#include "longhaul/base/random.h"
#include "longhaul/optim/kernels/grad_norm.h"
#include "tests/support/range_updates.h"

namespace longhaul::optim {
namespace {

struct LambState {
  std::vector<float> grad, master, m, v;
  std::vector<uint16_t> m16, v16, weight;
  AdamWRange range(bool narrow = false) {
    AdamWRange r{.count = static_cast<int64_t>(master.size()),
                 .grad = grad.data(),
                 .master = master.data(),
                 .exp_avg = m.data(),
                 .exp_avg_sq = v.data(),
                 .weight = master.data()};
    if (narrow) {
      r.exp_avg = m16.data();
      r.exp_avg_sq = v16.data();
      r.moments_dtype = format::DType::BF16;
      r.weight = weight.data();
      r.weight_dtype = format::DType::BF16;
    }
    return r;
  }
};

LambState lamb_state(size_t count) {
  LambState s;
  for (size_t i = 0; i < count; ++i) {
    const auto bits = philox(11, i, 0);
    s.grad.push_back(normal_from_bits(bits[0], bits[1])[0]);
    s.master.push_back(0.02F * normal_from_bits(bits[0], bits[1])[1]);
    s.m.push_back(uniform_from_bits(bits[2]) - 0.5F);
    s.v.push_back(uniform_from_bits(bits[3]));
    s.m16.push_back(format::float_to_bf16(s.m.back()));
    s.v16.push_back(format::float_to_bf16(s.v.back()));
  }
  s.weight.resize(count);
  return s;
}

constexpr AdamWStep kLambStep{.beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-6,
                              .lr = 2e-3,
                              .weight_decay = 0.01,
                              .grad_scale = 0.37,
                              .update = 7};

/// Makes one update of the range, which is a whole tensor, and returns the trust ratio.
double lamb_update(const AdamWRange& range, AdamWStep step,
                   system::Isa isa = system::best_isa()) {
  const double ratio = trust_ratio(lamb_moments(range, step, isa));
  step.lr *= ratio;
  lamb_apply(range, step, isa);
  return ratio;
}

/// Expects the values that LAMB's formula gives in fp64, written here from its
/// definition. The trust ratio is that of the weights before the update.
void expect_lamb(const LambState& before, const LambState& after, const AdamWStep& step) {
  const size_t n = before.master.size();
  std::vector<double> u(n);
  double weight = 0.0;
  double update = 0.0;
  for (size_t i = 0; i < n; ++i) {
    const double g = before.grad[i] * step.grad_scale;
    const double m = step.beta1 * before.m[i] + (1.0 - step.beta1) * g;
    const double v = step.beta2 * before.v[i] + (1.0 - step.beta2) * g * g;
    const double t = static_cast<double>(step.update);
    u[i] = m / (1.0 - std::pow(step.beta1, t)) /
               (std::sqrt(v) / std::sqrt(1.0 - std::pow(step.beta2, t)) + step.eps) +
           step.weight_decay * before.master[i];
    weight += static_cast<double>(before.master[i]) * before.master[i];
    update += u[i] * u[i];
    EXPECT_NEAR(after.m[i], m, 1e-6) << i;
    EXPECT_NEAR(after.v[i], v, 1e-6) << i;
  }
  const double ratio = std::min(1.0, std::sqrt(weight / update));
  for (size_t i = 0; i < n; ++i) {
    const double expected = before.master[i] - step.lr * ratio * u[i];
    // The master is rounded three times: in the factor of its decay, in the product and
    // in the difference.
    ASSERT_NEAR(after.master[i], expected, 3 * 0x1p-24 * std::abs(expected) + 1e-10) << i;
  }
}

TEST(Lamb, IsItsFormula) {
  for (const size_t count : {1UL, 15UL, 1000UL, 70001UL}) {
    const LambState before = lamb_state(count);
    LambState after = before;
    const double ratio = lamb_update(after.range(), kLambStep);
    EXPECT_LT(ratio, 1.0);
    expect_lamb(before, after, kLambStep);
  }
}

TEST(Lamb, RatioIsAtMostOneAndOneWhereANormIsZero) {
  EXPECT_EQ(trust_ratio({4.0, 16.0}), 0.5);
  EXPECT_EQ(trust_ratio({16.0, 4.0}), 1.0);
  EXPECT_EQ(trust_ratio({0.0, 4.0}), 1.0);
  EXPECT_EQ(trust_ratio({4.0, 0.0}), 1.0);
}

TEST(Lamb, InstructionSetsAndThreadCountsGiveTheSameBits) {
  const size_t count = 3 * kNormBlock + 13;
  const int before = omp_get_max_threads();
  for (const bool narrow : {false, true}) {
    LambState reference = lamb_state(count);
    omp_set_num_threads(1);
    const double ratio =
        lamb_update(reference.range(narrow), kLambStep, system::Isa::Avx2);
    for (const system::Isa isa : {system::Isa::Avx2, system::Isa::Avx512}) {
      if (isa > system::best_isa()) continue;
      for (const int threads : {1, 2, 5}) {
        LambState other = lamb_state(count);
        omp_set_num_threads(threads);
        EXPECT_EQ(lamb_update(other.range(narrow), kLambStep, isa), ratio);
        EXPECT_EQ(other.master, reference.master);
        EXPECT_EQ(other.m, reference.m);
        EXPECT_EQ(other.v16, reference.v16);
        EXPECT_EQ(other.weight, reference.weight);
      }
    }
  }
  omp_set_num_threads(before);
}

TEST(Lamb, SumsOfBlocksAreTheSumsOfTheWhole) {
  const int64_t count = 2 * kNormBlock;
  LambState whole = lamb_state(static_cast<size_t>(count));
  LambState cut = whole;
  const LambSums sums = lamb_moments(whole.range(), kLambStep);
  LambSums added;
  for (int64_t b = 0; b < 2; ++b) {
    AdamWRange r = cut.range();
    r.count = kNormBlock;
    r.grad = cut.grad.data() + b * kNormBlock;
    r.master = cut.master.data() + b * kNormBlock;
    r.exp_avg = cut.m.data() + b * kNormBlock;
    r.exp_avg_sq = cut.v.data() + b * kNormBlock;
    r.weight = r.master;
    const LambSums part = lamb_moments(r, kLambStep);
    added.weight += part.weight;
    added.update += part.update;
  }
  EXPECT_EQ(added.weight, sums.weight);
  EXPECT_EQ(added.update, sums.update);
  EXPECT_EQ(sums.weight, sum_of_squares(whole.master.data(), count, format::DType::F32));
}

TEST(Lamb, Bf16MomentsAreReadAsTheyAreStored) {
  LambState narrow = lamb_state(777);
  LambState wide = narrow;
  for (size_t i = 0; i < 777; ++i) {
    wide.m[i] = format::bf16_to_float(wide.m16[i]);
    wide.v[i] = format::bf16_to_float(wide.v16[i]);
  }
  lamb_moments(narrow.range(true), kLambStep);
  lamb_moments(wide.range(), kLambStep);
  for (size_t i = 0; i < 777; ++i) {
    ASSERT_EQ(narrow.m16[i], format::float_to_bf16(wide.m[i])) << i;
    wide.m[i] = format::bf16_to_float(narrow.m16[i]);
    wide.v[i] = format::bf16_to_float(narrow.v16[i]);
  }
  lamb_apply(narrow.range(true), kLambStep);
  lamb_apply(wide.range(), kLambStep);
  EXPECT_EQ(narrow.master, wide.master);
  EXPECT_EQ(narrow.weight[5], format::float_to_bf16(wide.master[5]));
}

}  // namespace
}  // namespace longhaul::optim
