#include "longhaul/base/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace longhaul {
namespace {

using Words = std::array<uint32_t, 4>;

TEST(Philox, KnownAnswersOfTheRandom123Suite) {
  // The numbers stand in kat_vectors of Random123, as "philox4x32 10 counter key result".
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // The counter and the key are digits of pi.
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomKey, DependsOnSeedAndPurpose) {
  EXPECT_EQ(random_key(1, "init"), random_key(1, "init"));
  EXPECT_NE(random_key(1, "init"), random_key(2, "init"));
  EXPECT_NE(random_key(1, "init"), random_key(1, "dropout"));
}

TEST(UniformFromBits, CoversZeroToJustBelowOne) {
  EXPECT_EQ(uniform_from_bits(0), 0.0F);
  EXPECT_EQ(uniform_from_bits(0x80000000), 0.5F);
  EXPECT_EQ(uniform_from_bits(0xFFFFFFFF), 1.0F - 0x1p-24F);
}

TEST(NormalFromBits, IsFiniteAtTheEdges) {
  for (const uint32_t a : {0U, 0xFFFFFFFFU}) {
    for (const uint32_t b : {0U, 0xFFFFFFFFU}) {
      for (const float x : normal_from_bits(a, b)) EXPECT_TRUE(std::isfinite(x));
    }
  }
}

TEST(NormalFromBits, HasTheMomentsOfAStandardNormal) {
  constexpr int kDraws = 200000;
  double sums[4] = {};
  double product = 0.0;
  for (int i = 0; i < kDraws / 2; ++i) {
    const Words words = philox(7, static_cast<uint64_t>(i), 0);
    const std::array<float, 2> pair = normal_from_bits(words[0], words[1]);
    product += double{pair[0]} * pair[1];
    for (const double x : {double{pair[0]}, double{pair[1]}}) {
      for (int power = 0; power < 4; ++power) sums[power] += std::pow(x, power + 1);
    }
  }
  // The bounds are five standard errors of each moment.
  const double root = std::sqrt(double{kDraws});
  EXPECT_NEAR(sums[0] / kDraws, 0.0, 5 * 1.0 / root);
  EXPECT_NEAR(sums[1] / kDraws, 1.0, 5 * std::sqrt(2.0) / root);
  EXPECT_NEAR(sums[2] / kDraws, 0.0, 5 * std::sqrt(15.0) / root);
  EXPECT_NEAR(sums[3] / kDraws, 3.0, 5 * std::sqrt(96.0) / root);
  EXPECT_NEAR(product / (kDraws / 2.0), 0.0, 5 * std::sqrt(2.0) / root);
}

}  // namespace
}  // namespace longhaul
