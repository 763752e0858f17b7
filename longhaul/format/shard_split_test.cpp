#include "longhaul/format/shard_split.h"

#include <gtest/gtest.h>

#include <vector>

#include "longhaul/base/error.h"

namespace longhaul::format {
namespace {

using Ranges = std::vector<ShardRange>;

/// Returns the heads of each of `tp` ranks.
Ranges split(ShardUnit unit, int64_t tp, Heads heads) {
  const int64_t count = unit == ShardUnit::QueryHeads ? heads.query : heads.key;
  Ranges ranges;
  for (int64_t i = 0; i < tp; ++i) {
    ranges.push_back(part_of(ShardSplit{unit, 0, heads}, count, {i, tp}));
  }
  return ranges;
}

Ranges queries(int64_t tp, Heads heads) {
  return split(ShardUnit::QueryHeads, tp, heads);
}
Ranges keys(int64_t tp, Heads heads) { return split(ShardUnit::KeyHeads, tp, heads); }

TEST(ShardSplit, GivesWholeGroupsWhereThereAreEnoughKeyHeads) {
  EXPECT_EQ(keys(2, {8, 4}), (Ranges{{0, 2}, {2, 4}}));
  EXPECT_EQ(queries(2, {8, 4}), (Ranges{{0, 4}, {4, 8}}));
  EXPECT_EQ(keys(3, {32, 8}), (Ranges{{0, 3}, {3, 6}, {6, 8}}));
  EXPECT_EQ(queries(3, {32, 8}), (Ranges{{0, 12}, {12, 24}, {24, 32}}));
}

TEST(ShardSplit, SharesAKeyHeadAmongRanksWhereThereAreTooFew) {
  EXPECT_EQ(keys(4, {6, 2}), (Ranges{{0, 1}, {0, 1}, {1, 2}, {1, 2}}));
  EXPECT_EQ(queries(4, {6, 2}), (Ranges{{0, 2}, {2, 3}, {3, 5}, {5, 6}}));
  EXPECT_EQ(keys(3, {6, 2}), (Ranges{{0, 1}, {0, 1}, {1, 2}}));
  EXPECT_EQ(queries(3, {6, 2}), (Ranges{{0, 2}, {2, 3}, {3, 6}}));
}

/// In every layout of some models one rank has each query head, together with its key
/// head.
TEST(ShardSplit, CoversEveryHeadAndStraddlesNoGroup) {
  for (const Heads heads : {Heads{6, 2}, {8, 8}, {12, 3}, {64, 8}}) {
    const int64_t group = heads.query / heads.key;
    for (int64_t tp = 1; tp <= heads.query; ++tp) {
      const Ranges query = queries(tp, heads), key = keys(tp, heads);
      int64_t next = 0;
      for (size_t r = 0; r < query.size(); ++r) {
        const ShardRange q = query[r], k = key[r];
        EXPECT_EQ(q.begin, next);
        EXPECT_GT(q.size(), 0);
        EXPECT_EQ(q.size() % k.size(), 0) << "tp " << tp << " rank " << r;
        EXPECT_EQ(q.begin / group, k.begin);
        EXPECT_EQ((q.end - 1) / group, k.end - 1);
        next = q.end;
      }
      EXPECT_EQ(next, heads.query);
    }
  }
}

TEST(ShardSplit, CutsRowsInUnitsOfHeadsAndOthersOneByOne) {
  const ShardSplit by_query = {ShardUnit::QueryHeads, 0, {6, 2}};
  EXPECT_EQ(part_of(by_query, 48, {1, 4}), (ShardRange{16, 24}));
  EXPECT_EQ(part_of(ShardSplit{ShardUnit::Vocabulary}, 101, {1, 4}),
            (ShardRange{26, 51}));
  EXPECT_EQ(part_of(ShardSplit{ShardUnit::Elements}, 3, {3, 4}).size(), 0);
  EXPECT_EQ(part_of(ShardSplit{ShardUnit::None}, 7, {3, 4}), (ShardRange{0, 7}));
  EXPECT_EQ(part_of(std::nullopt, 7, {3, 4}), (ShardRange{0, 7}));
  EXPECT_THROW(part_of(by_query, 47, {1, 4}), Error);
}

}  // namespace
}  // namespace longhaul::format
