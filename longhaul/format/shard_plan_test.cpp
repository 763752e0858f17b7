#include "longhaul/format/shard_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::format {
namespace {

using Ranges = std::vector<ShardRange>;

/// Returns a tensor that splits as its name says.
SplitTensor tensor(const std::string& name, std::vector<int64_t> shape) {
  const std::vector<std::pair<std::string, ShardSplit>> splits = {
      {".q.weight", {ShardUnit::QueryHeads, 0}},
      {".k.weight", {ShardUnit::KeyHeads, 0}},
      {".o.weight", {ShardUnit::QueryHeads, 1}},
      {".up.weight", {ShardUnit::Elements, 0}},
      {".head_norm.weight", {ShardUnit::None, 0}},
      {"embed.weight", {ShardUnit::Vocabulary, 0}}};
  SplitTensor made{TensorSlice::whole(name, std::move(shape), DType::F32), {}};
  for (const auto& [end, split] : splits) {
    if (name.ends_with(end)) made.split = split;
  }
  return made;
}

ShardPlan plan_of(int64_t tp, int64_t query_heads, int64_t key_heads, bool sequence) {
  return make_shard_plan(query_heads, key_heads, tp, sequence);
}

TEST(SplitHeads, GivesWholeGroupsWhereThereAreEnoughKeyHeads) {
  const HeadSplit two = split_heads(2, 8, 4);
  EXPECT_EQ(two.key, (Ranges{{0, 2}, {2, 4}}));
  EXPECT_EQ(two.query, (Ranges{{0, 4}, {4, 8}}));
  const HeadSplit three = split_heads(3, 32, 8);
  EXPECT_EQ(three.key, (Ranges{{0, 3}, {3, 6}, {6, 8}}));
  EXPECT_EQ(three.query, (Ranges{{0, 12}, {12, 24}, {24, 32}}));
}

TEST(SplitHeads, SharesAKeyHeadAmongRanksWhereThereAreTooFew) {
  const HeadSplit four = split_heads(4, 6, 2);
  EXPECT_EQ(four.key, (Ranges{{0, 1}, {0, 1}, {1, 2}, {1, 2}}));
  EXPECT_EQ(four.query, (Ranges{{0, 2}, {2, 3}, {3, 5}, {5, 6}}));
  const HeadSplit three = split_heads(3, 6, 2);
  EXPECT_EQ(three.key, (Ranges{{0, 1}, {0, 1}, {1, 2}}));
  EXPECT_EQ(three.query, (Ranges{{0, 2}, {2, 3}, {3, 6}}));
}

/// In every layout of some models one rank has each query head, together with its key
/// head.
TEST(SplitHeads, CoversEveryHeadAndStraddlesNoGroup) {
  for (const auto& [query, key] : {std::pair{6L, 2L}, {8L, 8L}, {12L, 3L}, {64L, 8L}}) {
    const int64_t group = query / key;
    for (int64_t tp = 1; tp <= query; ++tp) {
      const HeadSplit split = split_heads(tp, query, key);
      ASSERT_EQ(split.query.size(), static_cast<size_t>(tp));
      int64_t next = 0;
      for (size_t r = 0; r < split.query.size(); ++r) {
        const ShardRange q = split.query[r], k = split.key[r];
        EXPECT_EQ(q.begin, next);
        EXPECT_GT(q.size(), 0);
        EXPECT_EQ(q.size() % k.size(), 0) << "tp " << tp << " rank " << r;
        EXPECT_EQ(q.begin / group, k.begin);
        EXPECT_EQ((q.end - 1) / group, k.end - 1);
        next = q.end;
      }
      EXPECT_EQ(next, query);
    }
  }
}

TEST(SplitHeads, RefusesMoreRanksThanQueryHeadsWithTheNumbers) {
  try {
    split_heads(8, 6, 2);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "[parallel] parallel.tp = 8 is more than the model's 6 query heads "
                 "(num_attention_heads); use at most 6");
  }
}

TEST(ShardPlan, CutsTheDimOfTheRuleInUnitsOfHeads) {
  const ShardPlan plan = plan_of(4, 6, 2, false);
  const ParameterShard q = plan_parameter(plan, tensor("a.q.weight", {48, 10}), 2);
  EXPECT_EQ(q.slice.offset, (std::vector<int64_t>{24, 0}));
  EXPECT_EQ(q.slice.extent, (std::vector<int64_t>{16, 10}));
  EXPECT_EQ(q.sum, GradientSum::None);
  EXPECT_TRUE(q.counted);
  const ParameterShard o = plan_parameter(plan, tensor("a.o.weight", {10, 48}), 3);
  EXPECT_EQ(o.slice.offset, (std::vector<int64_t>{0, 40}));
  EXPECT_EQ(o.slice.extent, (std::vector<int64_t>{10, 8}));
  const ParameterShard v = plan_parameter(plan, tensor("embed.weight", {101, 10}), 1);
  EXPECT_EQ(v.slice.offset[0], 26);
  EXPECT_EQ(v.slice.extent[0], 25);
}

TEST(ShardPlan, OneOfTheRanksThatHoldAKeyHeadIsCountedAndAllSum) {
  const ShardPlan plan = plan_of(4, 6, 2, false);
  const SplitTensor k = tensor("a.k.weight", {16, 10});
  for (int64_t rank = 0; rank < 4; ++rank) {
    const ParameterShard shard = plan_parameter(plan, k, rank);
    EXPECT_EQ(shard.slice.offset[0], rank / 2 * 8);
    EXPECT_EQ(shard.slice.extent[0], 8);
    EXPECT_EQ(shard.sum, GradientSum::KeyReplicas);
    EXPECT_EQ(shard.counted, rank % 2 == 0);
    const KeyReplica replica = key_replica(plan, rank);
    EXPECT_EQ(replica.color, rank / 2);
    EXPECT_EQ(replica.index, rank % 2);
    EXPECT_EQ(replica.count, 2);
  }
  const ShardPlan two = plan_of(2, 6, 2, false);
  EXPECT_EQ(plan_parameter(two, k, 1).sum, GradientSum::None);
  EXPECT_TRUE(plan_parameter(two, k, 1).counted);
}

TEST(ShardPlan, AKeyHeadMayHaveFewerRowsThanRanksThatHoldIt) {
  const ShardPlan plan = plan_of(6, 6, 1, false);
  for (int64_t rank = 0; rank < 6; ++rank) {
    const ParameterShard shard =
        plan_parameter(plan, tensor("a.k.weight", {2, 10}), rank);
    EXPECT_TRUE(shard.slice.is_whole());
    EXPECT_EQ(shard.counted, rank == 0);
  }
}

TEST(ShardPlan, WholeParametersSumWhereRanksSeeOnlyAPart) {
  const SplitTensor norm = tensor("a.norm.weight", {10});
  const SplitTensor head_norm = tensor("a.head_norm.weight", {8});
  const ShardPlan plain = plan_of(2, 6, 2, false), sequence = plan_of(2, 6, 2, true);
  EXPECT_EQ(plan_parameter(plain, norm, 1).sum, GradientSum::First);
  EXPECT_EQ(plan_parameter(sequence, norm, 1).sum, GradientSum::Tp);
  EXPECT_EQ(plan_parameter(plain, head_norm, 1).sum, GradientSum::Tp);
  EXPECT_TRUE(plan_parameter(sequence, norm, 0).counted);
  EXPECT_FALSE(plan_parameter(sequence, norm, 1).counted);
  EXPECT_TRUE(plan_parameter(sequence, norm, 1).slice.is_whole());
  // A single rank sums with no other rank.
  EXPECT_EQ(plan_parameter(plan_of(1, 6, 2, true), norm, 0).sum, GradientSum::None);
}

TEST(ShardPlan, SaysOnceWhatDoesNotDivide) {
  const std::vector<SplitTensor> tensors = {
      tensor("embed.weight", {1009, 10}), tensor("0.q.weight", {48, 10}),
      tensor("0.k.weight", {16, 10}),     tensor("0.o.weight", {10, 48}),
      tensor("0.up.weight", {40, 10}),    tensor("0.norm.weight", {10})};
  EXPECT_EQ(uneven_splits(plan_of(4, 6, 2, false), tensors),
            (std::vector<std::string>{"vocabulary 1009 over tp 4: 253 252 252 252",
                                      "query heads 6 over tp 4: 2 1 2 1",
                                      "key heads 2 over tp 4: held by 2 2 ranks"}));
  EXPECT_EQ(uneven_splits(plan_of(3, 6, 2, false), tensors).back(),
            "inner size 40 over tp 3: 14 13 13");
  EXPECT_TRUE(uneven_splits(plan_of(1, 6, 2, false), tensors).empty());
}

TEST(ShardPlan, RefusesToLeaveARankWithoutAPart) {
  try {
    plan_parameter(plan_of(4, 6, 2, false), tensor("a.up.weight", {3, 10}), 0);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "[parallel] parallel.tp = 4 leaves ranks without a part of a.up.weight "
                 "[3, 10] (dim 0); use a smaller tp");
  }
}

}  // namespace
}  // namespace longhaul::format
