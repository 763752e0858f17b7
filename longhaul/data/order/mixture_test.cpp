#include "longhaul/data/order/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

constexpr int64_t kWindow = Mixture::kWindow;
constexpr int64_t kPeriod = Mixture::kPeriod;

/// Returns weights of 2 to 50 sources: even, skewed, tiny, just below and above whole
/// thousandths, and many large fractions.
std::vector<std::vector<double>> weight_sets() {
  std::vector<std::vector<double>> sets = {{1.0},
                                           {1.0, 1.0},
                                           {0.7, 0.3},
                                           {0.7, 0.299, 0.001},
                                           {0.5, 0.4999985, 0.0000015},
                                           {1, 1, 1},
                                           {5, 4, 3, 2, 1, 1, 0.5, 0.01},
                                           {0.333999, 0.333999, 0.332002},
                                           {0.9, 0.05, 0.03, 0.01, 0.005, 0.004, 0.001},
                                           std::vector<double>(50, 1.0),
                                           std::vector<double>(33, 1.0),
                                           std::vector<double>(7, 1.0)};
  // There are F = 49 floating places, and each source has a share of nearly one place.
  sets.emplace_back(50, 0.01998);
  sets.back()[0] = 1.0 - 49 * 0.01998;
  // These weights have fractional shares of a half beside fractional shares of nearly
  // one.
  sets.push_back({0.0005, 0.0005, 0.001999, 0.001999, 0.002999, 0.5, 0.492003});
  std::mt19937_64 random(17);
  for (size_t sources = 2; sources <= 50; sources += 3) {
    std::vector<double>& even = sets.emplace_back();
    std::vector<double>& skewed = sets.emplace_back();
    for (size_t i = 0; i < sources; ++i) {
      const double u = static_cast<double>(random() % 1'000'000 + 1) * 1e-6;
      even.push_back(u);
      skewed.push_back(std::pow(u, 6.0) + 1e-5);
    }
  }
  return sets;
}

/// Walks along the stream from `begin` on, and counts each source's sequences before the
/// place that it has reached.
class Walk {
 public:
  Walk(const Mixture& mixture, int64_t begin)
      : mixture_(mixture), at_(begin), seen_(mixture.counts(begin)) {}

  int next() {
    const Mixture::Pick pick = mixture_.pick(at_++);
    EXPECT_EQ(pick.ordinal, seen_[static_cast<size_t>(pick.source)]++);
    return pick.source;
  }
  const std::vector<int64_t>& seen() const { return seen_; }
  int64_t at() const { return at_; }

 private:
  const Mixture& mixture_;
  int64_t at_;
  std::vector<int64_t> seen_;
};

/// Returns the largest distance, in millionths of a sequence, between a source's count in
/// any 1,000 sequences in a row and the source's share.
int64_t worst_window(const Mixture& mixture, int64_t begin, int64_t length) {
  std::vector<int64_t> inside(mixture.shares().size(), 0);
  std::vector<int> last(static_cast<size_t>(kWindow), -1);
  Walk walk(mixture, begin);
  int64_t worst = 0;
  for (int64_t n = 0; n < length; ++n) {
    int& old = last[static_cast<size_t>(n % kWindow)];
    const int left = old;
    if (left >= 0) --inside[static_cast<size_t>(left)];
    old = walk.next();
    ++inside[static_cast<size_t>(old)];
    if (n + 1 < kWindow) continue;
    // Only these two counts differ from the window before.
    for (const int source : {left, old}) {
      if (source < 0) continue;
      const auto s = static_cast<size_t>(source);
      worst = std::max(worst, std::abs(inside[s] * 1000 - mixture.shares()[s]));
    }
  }
  for (size_t s = 0; s < inside.size(); ++s) {
    worst = std::max(worst, std::abs(inside[s] * 1000 - mixture.shares()[s]));
  }
  return worst * 1000;
}

TEST(Mixture, HoldsEachShareToTheFloorOrCeilingInEveryWindowOfAThousand) {
  for (const std::vector<double>& weights : weight_sets()) {
    const Mixture mixture(weights);
    // The first stretch crosses the ends of two periods, and the second stretch the end
    // of a late period. Each period has its own order of floating places.
    EXPECT_LT(worst_window(mixture, 0, 2 * kPeriod + 3 * kWindow), 1'000'000)
        << weights.size() << " sources, first weight " << weights[0];
    EXPECT_LT(worst_window(mixture, 7'000'000 * kPeriod - 5 * kWindow, 10 * kWindow),
              1'000'000);
  }
}

TEST(Mixture, HoldsEachShareToTheFloorOrCeilingAfterEveryThousand) {
  for (const std::vector<double>& weights : weight_sets()) {
    const Mixture mixture(weights);
    for (int64_t k = 0; k <= 2000; ++k) {
      const std::vector<int64_t> counts = mixture.counts(k * kWindow);
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), k * kWindow);
      for (size_t i = 0; i < counts.size(); ++i) {
        const int64_t due = k * mixture.shares()[i];  // in thousandths
        ASSERT_GE(counts[i], due / 1000);
        ASSERT_LE(counts[i], (due + 999) / 1000);
      }
    }
    EXPECT_EQ(mixture.counts(kPeriod), mixture.shares());
  }
}

TEST(Mixture, KeepsEveryPrefixWithinThreeSequences) {
  for (const std::vector<double>& weights : weight_sets()) {
    const Mixture mixture(weights);
    Walk walk(mixture, 0);
    double worst = 0.0;
    for (int64_t n = 0; n < kPeriod / 4; ++n) {
      const auto s = static_cast<size_t>(walk.next());
      const double due = static_cast<double>(mixture.shares()[s]) * 1e-6;
      // A source is farthest from its exact share just before and just after its turn.
      const auto seen = static_cast<double>(walk.seen()[s]);
      worst = std::max({worst, std::abs(seen - due * static_cast<double>(n + 1)),
                        std::abs(seen - 1.0 - due * static_cast<double>(n))});
    }
    EXPECT_LT(worst, 3.0) << weights.size() << " sources, first weight " << weights[0];
  }
}

TEST(Mixture, RoundsWeightsToMillionths) {
  EXPECT_EQ(Mixture({0.7, 0.3}).shares(), (std::vector<int64_t>{700'000, 300'000}));
  EXPECT_EQ(Mixture({1, 1, 1}).shares(),
            (std::vector<int64_t>{333'334, 333'333, 333'333}));
  EXPECT_EQ(Mixture({1e-6, 1.0 - 1e-6}).shares(), (std::vector<int64_t>{1, 999'999}));
  EXPECT_EQ(Mixture({3.0, 0.0, 1.0}).shares(),
            (std::vector<int64_t>{750'000, 0, 250'000}));
}

TEST(Mixture, StaysExactFarOut) {
  const Mixture mixture({3.0, 1.0});
  const int64_t far = (int64_t{1} << 61) / kPeriod * kPeriod;
  EXPECT_EQ(mixture.counts(far), (std::vector<int64_t>{far / 4 * 3, far / 4}));
  const Mixture::Pick pick = mixture.pick(far);
  EXPECT_EQ(pick.ordinal, pick.source == 0 ? far / 4 * 3 : far / 4);
}

std::string refusal(const std::vector<double>& weights) {
  try {
    const Mixture refused(weights);
    return "taken";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Mixture, RefusesWeightsThatCannotBeMixed) {
  EXPECT_NE(refusal({0.0, 0.0}).find("add up to 0"), std::string::npos);
  EXPECT_NE(refusal({2.0, -1.0}).find("source 2 of data.train has weight -1"),
            std::string::npos);
  EXPECT_NE(refusal({1.0, NAN}).find("weight nan"), std::string::npos);
  EXPECT_NE(refusal({1.0, 2e-7}).find("source 2 of data.train has weight 2e-07"),
            std::string::npos)
      << refusal({1.0, 2e-7});
}

}  // namespace
}  // namespace longhaul::data
