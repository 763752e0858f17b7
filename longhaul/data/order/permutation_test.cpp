#include "longhaul/data/order/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace longhaul::data {
namespace {

TEST(Permutation, HitsEveryElementOnceForEverySmallSize) {
  for (int64_t size = 1; size <= 300; ++size) {
    const Permutation order(size, 99);
    std::vector<int> hits(static_cast<size_t>(size), 0);
    for (int64_t i = 0; i < size; ++i) ++hits[static_cast<size_t>(order(i))];
    for (const int hit : hits) ASSERT_EQ(hit, 1) << size;
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(order.index_of(order(i)), i) << size;
  }
}

TEST(Permutation, DependsOnKeyAndOnNothingElse) {
  const Permutation a(100003, 7);
  const Permutation again(100003, 7);
  const Permutation other(100003, 8);
  int same_as_other = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(a(i), again(i));
    if (a(i) == other(i)) ++same_as_other;
  }
  EXPECT_LT(same_as_other, 5);
}

TEST(Permutation, SpreadsNeighboursLikeRandomNumbers) {
  // The mean distance of independent uniform numbers in [0, n) is n / 3.
  constexpr int64_t kSize = 1 << 20;
  const Permutation order(kSize, 3);
  double distance = 0;
  for (int64_t i = 0; i < 20000; ++i) {
    distance += std::abs(static_cast<double>(order(i + 1) - order(i)));
  }
  EXPECT_NEAR(distance / 20000 / kSize, 1.0 / 3.0, 0.01);
}

TEST(Permutation, ReachesAllOrdersOfThree) {
  std::vector<int> seen(27, 0);
  for (uint64_t key = 0; key < 200; ++key) {
    const Permutation order(3, key);
    ++seen[static_cast<size_t>(order(0) * 9 + order(1) * 3 + order(2))];
  }
  int orders = 0;
  for (const int count : seen) orders += count > 0 ? 1 : 0;
  EXPECT_EQ(orders, 6);
}

TEST(Permutation, WorksAtTheLargestSize) {
  const int64_t size = int64_t{1} << 62;
  const Permutation order(size, 5);
  for (int64_t i = 0; i < 100; ++i) {
    const int64_t to = order(size - 1 - i);
    EXPECT_EQ(order.index_of(to), size - 1 - i);
    EXPECT_GE(to, 0);
    EXPECT_LT(to, size);
  }
}

}  // namespace
}  // namespace longhaul::data
