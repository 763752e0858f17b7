#include "longhaul/train/proof/replica_check.h"

#include <gtest/gtest.h>

namespace longhaul::train {
namespace {

using Ranks = std::vector<int>;

TEST(Outvoted, NobodyWhereAllAgree) {
  EXPECT_EQ(outvoted({0, 0, 0}, {5, 5, 5}), Ranks{});
  EXPECT_EQ(outvoted({0}, {5}), Ranks{});
}

TEST(Outvoted, TheOneThatDiffersFromMostOthers) {
  EXPECT_EQ(outvoted({0, 0, 0}, {5, 6, 5}), Ranks{1});
  EXPECT_EQ(outvoted({0, 0, 0, 0, 0}, {6, 5, 5, 7, 5}), (Ranks{0, 3}));
}

TEST(Outvoted, AllWhereThereIsNoMajority) {
  EXPECT_EQ(outvoted({0, 0}, {5, 6}), (Ranks{0, 1}));
  EXPECT_EQ(outvoted({0, 0, 0, 0}, {5, 5, 6, 6}), (Ranks{0, 1, 2, 3}));
}

TEST(Outvoted, OnlyThoseWithTheSameKeyAreCompared) {
  EXPECT_EQ(outvoted({0, 1, 0, 1}, {5, 8, 5, 8}), Ranks{});
  EXPECT_EQ(outvoted({0, 1, 0, 1, 0, 1}, {5, 8, 5, 9, 5, 8}), Ranks{3});
}

}  // namespace
}  // namespace longhaul::train
