#include "longhaul/data/bert/shard_order.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

std::vector<fs::path> names(int count) {
  std::vector<fs::path> files;
  for (int i = 0; i < count; ++i) files.emplace_back(fmt::format("f{:03}", i));
  return files;
}

// From Python 3.11: x = list(range(n)); random.Random(seed).shuffle(x)
TEST(ShardOrder, ShufflesAsPythonDoes) {
  using Order = std::vector<int64_t>;
  EXPECT_EQ(python_shuffled(12, 0), (Order{1, 9, 8, 5, 10, 2, 3, 7, 4, 0, 11, 6}));
  EXPECT_EQ(python_shuffled(12, 1), (Order{7, 11, 0, 8, 5, 6, 3, 10, 4, 1, 9, 2}));
  EXPECT_EQ(python_shuffled(12, 7), (Order{7, 11, 3, 10, 8, 4, 9, 1, 0, 6, 2, 5}));
  EXPECT_EQ(python_shuffled(12, (uint64_t{1} << 40) + 5),
            (Order{3, 5, 2, 9, 6, 7, 1, 10, 0, 4, 11, 8}));
  const Order many = python_shuffled(1024, 3);
  EXPECT_EQ(Order(many.begin(), many.begin() + 8),
            (Order{421, 225, 705, 207, 583, 923, 927, 253}));
  EXPECT_TRUE(python_shuffled(0, 0).empty());
  EXPECT_EQ(python_shuffled(1, 5), (Order{0}));
}

TEST(ShardOrder, GroupsTakeTurnsOverTheShuffledFiles) {
  const std::vector<int64_t> shuffled = python_shuffled(10, 2);
  for (int64_t group = 0; group < 4; ++group) {
    const ShardOrder order(names(10), 2, group, 4);
    for (int64_t f = 0; f < 25; ++f) {
      const auto wanted = shuffled[static_cast<size_t>((f * 4 + group) % 10)];
      EXPECT_EQ(order.file(f), names(10)[static_cast<size_t>(wanted)]);
    }
  }
}

TEST(ShardOrder, InOneStepAllGroupsReadDifferentFiles) {
  for (int64_t f = 0; f < 30; ++f) {
    std::set<std::string> seen;
    for (int64_t group = 0; group < 7; ++group) {
      seen.insert(ShardOrder(names(9), 1, group, 7).file(f).string());
    }
    EXPECT_EQ(seen.size(), 7U);
  }
}

TEST(ShardOrder, MoreGroupsThanShardsAreRefused) {
  EXPECT_THROW(ShardOrder(names(3), 0, 0, 4), ConfigError);
}

}  // namespace
}  // namespace longhaul::data
