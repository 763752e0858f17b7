#include "longhaul/data/order/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

/// The largest distance of any prefix count from its share, by walking the stream; checks
/// on the way that ordinals are counts and that counts() agrees.
double worst_prefix(const std::vector<double>& weights, int64_t length) {
  const Mixture mixture(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> seen(weights.size(), 0);
  double worst = 0;
  for (int64_t g = 0; g < length; ++g) {
    if (g % 997 == 0) {
      EXPECT_EQ(mixture.counts(g), seen);
    }
    const Mixture::Pick pick = mixture.pick(g);
    const auto s = static_cast<size_t>(pick.source);
    EXPECT_EQ(pick.ordinal, seen[s]++);
    for (size_t i = 0; i < weights.size(); ++i) {
      const double share = static_cast<double>(g + 1) * weights[i] / sum;
      worst = std::max(worst, std::abs(static_cast<double>(seen[i]) - share));
    }
  }
  return worst;
}

TEST(Mixture, KeepsEveryPrefixOfUpToThreeSourcesWithinOneSequence) {
  EXPECT_LE(worst_prefix({1.0}, 3000), 1e-9);
  EXPECT_LE(worst_prefix({1.0, 1.0}, 3000), 0.5 + 1e-9);
  EXPECT_LE(worst_prefix({0.9, 0.1}, 20000), 0.5 + 1e-9);
  EXPECT_LE(worst_prefix({0.7, 0.299, 0.001}, 20000), 1.0);
  EXPECT_LE(worst_prefix({0.49, 0.49, 0.02}, 20000), 1.0);
}

TEST(Mixture, KeepsManySourcesWithinTwoSequences) {
  EXPECT_LE(worst_prefix({5, 4, 3, 2, 1, 1, 0.5, 0.01}, 20000), 2.0);
  EXPECT_LE(worst_prefix(std::vector<double>(33, 1.0), 20000), 2.0);
}

TEST(Mixture, HoldsTheShareInEveryWindowOfAThousand) {
  const Mixture mixture({0.7, 0.3});
  for (int64_t begin = 0; begin < 100000; begin += 37) {
    const int64_t inside = mixture.counts(begin + 1000)[0] - mixture.counts(begin)[0];
    ASSERT_LE(std::abs(inside - 700), 1) << begin;
  }
}

TEST(Mixture, StaysExactFarOut) {
  const Mixture mixture({3.0, 1.0});
  const int64_t far = int64_t{1} << 61;
  EXPECT_EQ(mixture.counts(far), (std::vector<int64_t>{far / 4 * 3, far / 4}));
  const Mixture::Pick pick = mixture.pick(far);
  EXPECT_EQ(pick.ordinal, pick.source == 0 ? far / 4 * 3 : far / 4);
}

TEST(Mixture, RefusesWeightsThatAreNotPositive) {
  EXPECT_THROW(Mixture({1.0, 0.0}), ConfigError);
  EXPECT_THROW(Mixture({-1.0}), ConfigError);
  EXPECT_THROW(Mixture({1.0, NAN}), ConfigError);
}

}  // namespace
}  // namespace longhaul::data
