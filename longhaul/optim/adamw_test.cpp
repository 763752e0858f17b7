#include "longhaul/optim/kernels/adamw.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/random.h"
#include "tests/support/range_updates.h"

namespace longhaul::optim {
namespace {

struct State {
  std::vector<float> grad, master, m, v, weight;
  AdamWRange range() {
    return {.count = static_cast<int64_t>(master.size()),
            .grad = grad.data(),
            .master = master.data(),
            .exp_avg = m.data(),
            .exp_avg_sq = v.data(),
            .weight = weight.empty() ? master.data() : weight.data()};
  }
};

State zero_state(size_t count) {
  return {.grad = std::vector<float>(count),
          .master = std::vector<float>(count),
          .m = std::vector<float>(count),
          .v = std::vector<float>(count),
          .weight = {}};
}

State random_state(size_t count) {
  State s = zero_state(count);
  for (size_t i = 0; i < count; ++i) {
    const auto bits = philox(3, i, 0);
    s.grad[i] = normal_from_bits(bits[0], bits[1])[0];
    s.master[i] = normal_from_bits(bits[0], bits[1])[1];
    s.m[i] = uniform_from_bits(bits[2]) - 0.5F;
    s.v[i] = uniform_from_bits(bits[3]);
  }
  return s;
}

constexpr AdamWStep kStep{.beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .lr = 1e-2,
                          .weight_decay = 0.1,
                          .update = 1};

/// Returns the gradient of element i in update t: a multiple of 1/64, and always 0 for
/// element 0.
float gradient(int i, int t) {
  return i == 0 ? 0.0F : static_cast<float>((i * 37 + t * 11) % 29 - 14) / 64.0F;
}

void start(State& s) {
  for (size_t i = 0; i < s.master.size(); ++i) {
    s.master[i] = 0.125F * static_cast<float>(i + 1) * (i % 2 == 0 ? 1.0F : -1.0F);
  }
}

void expect_close(const std::vector<float>& actual, const std::array<float, 6>& expected,
                  const char* what) {
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-6F * std::abs(expected[i]))
        << what << " " << i;
  }
}

// Printed by torch.optim.AdamW (2.13, foreach=False), lr 1e-2, betas (0.9, 0.95), eps
// 1e-8, weight_decay 0.1, from the same start and gradients.
TEST(AdamW, TorchConventionFollowsTorchFor20Steps) {
  State s = zero_state(6);
  start(s);
  AdamWStep step = kStep;
  for (int t = 1; t <= 20; ++t) {
    for (int i = 0; i < 6; ++i) s.grad[static_cast<size_t>(i)] = gradient(i, t);
    step.update = t;
    adamw_update(s.range(), step);
    if (t == 1) {
      expect_close(s.master,
                   {0.124875002F, -0.259750009F, 0.364625007F, -0.489500016F,
                    0.624374986F, -0.759249985F},
                   "parameter after one step");
    }
  }
  expect_close(s.master,
               {0.122523636F, -0.251847148F, 0.337858438F, -0.480446845F, 0.613952518F,
                -0.750071406F},
               "parameter");
  expect_close(
      s.m,
      {0.0F, 0.0199602265F, -0.0147586185F, -0.0180794969F, 0.0106371827F, 0.0228619128F},
      "first moment");
  expect_close(
      s.v,
      {0.0F, 0.0111756641F, 0.0115742646F, 0.0108033055F, 0.0103643909F, 0.0117049888F},
      "second moment");
}

TEST(AdamW, HfConventionFoldsTheCorrectionIntoTheStepAndDecaysAfterwards) {
  State s = zero_state(6);
  start(s);
  AdamWStep step = kStep;
  step.convention = AdamConvention::Hf;
  step.eps = 1e-2;  // large, so that its place in the formula shows
  std::array<double, 6> p, m{}, v{};
  for (size_t i = 0; i < 6; ++i) p[i] = s.master[i];
  for (int t = 1; t <= 20; ++t) {
    for (size_t i = 0; i < 6; ++i) {
      const double g = gradient(static_cast<int>(i), t);
      s.grad[i] = static_cast<float>(g);
      m[i] = 0.9 * m[i] + (1.0 - 0.9) * g;
      v[i] = 0.95 * v[i] + (1.0 - 0.95) * g * g;
      const double size =
          1e-2 * std::sqrt(1.0 - std::pow(0.95, t)) / (1.0 - std::pow(0.9, t));
      p[i] -= size * m[i] / (std::sqrt(v[i]) + 1e-2);
      p[i] -= p[i] * 1e-2 * 0.1;
    }
    step.update = t;
    adamw_update(s.range(), step);
  }
  for (size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(s.master[i], p[i], 1e-6 * std::abs(p[i])) << i;
}

TEST(AdamW, InstructionSetsAndThreadCountsGiveTheSameBits) {
  const size_t count = 5 * 16384 + 13;
  const int before = omp_get_max_threads();
  for (const AdamConvention convention : {AdamConvention::Torch, AdamConvention::Hf}) {
    AdamWStep step = kStep;
    step.convention = convention;
    step.grad_scale = 0.37;
    State reference = random_state(count);
    omp_set_num_threads(1);
    adamw_update(reference.range(), step, system::Isa::Avx2);
    for (const system::Isa isa : {system::Isa::Avx2, system::Isa::Avx512}) {
      if (isa > system::best_isa()) continue;
      for (const int threads : {1, 2, 5}) {
        State other = random_state(count);
        omp_set_num_threads(threads);
        adamw_update(other.range(), step, isa);
        EXPECT_EQ(other.master, reference.master);
        EXPECT_EQ(other.m, reference.m);
        EXPECT_EQ(other.v, reference.v);
      }
    }
  }
  omp_set_num_threads(before);
}

TEST(AdamW, CutsOfARangeGiveTheBitsOfTheWhole) {
  State whole = random_state(1000);
  adamw_update(whole.range(), kStep);
  State cut = random_state(1000);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 333}, {333, 1000}}) {
    AdamWRange r = cut.range();
    r.count = end - begin;
    r.grad = cut.grad.data() + begin;
    r.master = cut.master.data() + begin;
    r.exp_avg = cut.m.data() + begin;
    r.exp_avg_sq = cut.v.data() + begin;
    r.weight = r.master;
    adamw_update(r, kStep);
  }
  EXPECT_EQ(cut.master, whole.master);
}

TEST(AdamW, GradScaleIsAFactorOfTheGradient) {
  State scaled = random_state(100);
  State halved = random_state(100);
  for (float& g : halved.grad) g *= 0.5F;
  AdamWStep step = kStep;
  adamw_update(halved.range(), step);
  step.grad_scale = 0.5;
  adamw_update(scaled.range(), step);
  EXPECT_EQ(scaled.master, halved.master);
  EXPECT_EQ(scaled.v, halved.v);
}

TEST(AdamW, WritesASeparateWeightInItsOwnType) {
  State plain = random_state(1001);
  adamw_update(plain.range(), kStep);
  State f32 = random_state(1001);
  f32.weight.resize(1001);
  adamw_update(f32.range(), kStep);
  EXPECT_EQ(f32.weight, plain.master);
  // The weights may lie at any alignment. The elements beside them stay unchanged.
  for (size_t place = 1; place <= 16; ++place) {
    State bf16 = random_state(1001);
    std::vector<uint16_t> weight(1001 + place + 1, 7);
    AdamWRange range = bf16.range();
    range.weight = weight.data() + place;
    range.weight_dtype = format::DType::BF16;
    adamw_update(range, kStep);
    EXPECT_EQ(bf16.master, plain.master);
    EXPECT_EQ(weight[place - 1], 7);
    EXPECT_EQ(weight[place + 1001], 7);
    for (size_t i = 0; i < plain.master.size(); ++i) {
      ASSERT_EQ(weight[place + i], format::float_to_bf16(plain.master[i]))
          << place << ", " << i;
    }
  }
}

TEST(AdamW, Bf16MomentsAndGradientsAreRoundedOnlyWhenStored) {
  const size_t count = 777;
  State exact = random_state(count);
  std::vector<uint16_t> g(count), m(count), v(count);
  for (size_t i = 0; i < count; ++i) {
    g[i] = format::float_to_bf16(exact.grad[i]);
    m[i] = format::float_to_bf16(exact.m[i]);
    v[i] = format::float_to_bf16(exact.v[i]);
    exact.grad[i] = format::bf16_to_float(g[i]);
    exact.m[i] = format::bf16_to_float(m[i]);
    exact.v[i] = format::bf16_to_float(v[i]);
  }
  State rounded = exact;
  adamw_update(exact.range(), kStep);
  AdamWRange range = rounded.range();
  range.grad = g.data();
  range.grad_dtype = format::DType::BF16;
  range.exp_avg = m.data();
  range.exp_avg_sq = v.data();
  range.moments_dtype = format::DType::BF16;
  adamw_update(range, kStep);
  EXPECT_EQ(rounded.master, exact.master);
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(m[i], format::float_to_bf16(exact.m[i])) << i;
    ASSERT_EQ(v[i], format::float_to_bf16(exact.v[i])) << i;
  }
}

TEST(AdamW, NotANumberStaysVisibleInABf16Weight) {
  State s = random_state(40);
  s.grad[17] = std::numeric_limits<float>::quiet_NaN();
  std::vector<uint16_t> weight(40);
  AdamWRange range = s.range();
  range.weight = weight.data();
  range.weight_dtype = format::DType::BF16;
  adamw_update(range, kStep);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(std::isnan(format::bf16_to_float(weight[i])), i == 17) << i;
  }
}

TEST(AdamW, RefusesWhatItCannotDo) {
  State s = random_state(4);
  AdamWStep step = kStep;
  step.update = 0;
  EXPECT_THROW(adamw_update(s.range(), step), Error);
  AdamWRange range = s.range();
  range.weight_dtype = format::DType::BF16;
  EXPECT_THROW(adamw_update(range, kStep), Error);
  range = s.range();
  range.moments_dtype = format::DType::F16;
  EXPECT_THROW(adamw_update(range, kStep), Error);
}

}  // namespace
}  // namespace longhaul::optim
