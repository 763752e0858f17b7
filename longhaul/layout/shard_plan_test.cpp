#include "longhaul/layout/shard_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::layout {
namespace {

using format::Heads;
using format::ShardUnit;

/// Returns a tensor that splits as its name says.
SplitTensor tensor(const std::string& name, std::vector<int64_t> shape,
                   Heads heads = {6, 2}) {
  const std::vector<std::pair<std::string, format::ShardSplit>> splits = {
      {".q.weight", {ShardUnit::QueryHeads, 0, heads}},
      {".k.weight", {ShardUnit::KeyHeads, 0, heads}},
      {".o.weight", {ShardUnit::QueryHeads, 1, heads}},
      {".up.weight", {ShardUnit::Elements, 0}},
      {".head_norm.weight", {ShardUnit::None, 0}},
      {"embed.weight", {ShardUnit::Vocabulary, 0}}};
  SplitTensor made{format::TensorSlice::whole(name, std::move(shape), format::DType::F32),
                   {}};
  for (const auto& [end, split] : splits) {
    if (name.ends_with(end)) made.split = split;
  }
  return made;
}

TEST(ShardPlan, CutsTheDimOfTheRuleInUnitsOfHeads) {
  const ShardPlan plan = {4, false};
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
  const ShardPlan plan = {4, false};
  const SplitTensor k = tensor("a.k.weight", {16, 10});
  for (int64_t rank = 0; rank < 4; ++rank) {
    const ParameterShard shard = plan_parameter(plan, k, rank);
    EXPECT_EQ(shard.slice.offset[0], rank / 2 * 8);
    EXPECT_EQ(shard.slice.extent[0], 8);
    EXPECT_EQ(shard.sum, GradientSum::KeyReplicas);
    EXPECT_EQ(shard.counted, rank % 2 == 0);
    const KeyReplica replica = key_replica(2, plan.rank(rank));
    EXPECT_EQ(replica.color, rank / 2);
    EXPECT_EQ(replica.index, rank % 2);
    EXPECT_EQ(replica.count, 2);
  }
  const ShardPlan two = {2, false};
  EXPECT_EQ(plan_parameter(two, k, 1).sum, GradientSum::None);
  EXPECT_TRUE(plan_parameter(two, k, 1).counted);
}

TEST(ShardPlan, AKeyHeadMayHaveFewerRowsThanRanksThatHoldIt) {
  const ShardPlan plan = {6, false};
  for (int64_t rank = 0; rank < 6; ++rank) {
    const ParameterShard shard =
        plan_parameter(plan, tensor("a.k.weight", {2, 10}, {6, 1}), rank);
    EXPECT_TRUE(shard.slice.is_whole());
    EXPECT_EQ(shard.counted, rank == 0);
  }
}

TEST(ShardPlan, WholeParametersSumWhereRanksSeeOnlyAPart) {
  const SplitTensor norm = tensor("a.norm.weight", {10});
  const SplitTensor head_norm = tensor("a.head_norm.weight", {8});
  const ShardPlan plain = {2, false}, sequence = {2, true};
  EXPECT_EQ(plan_parameter(plain, norm, 1).sum, GradientSum::First);
  EXPECT_EQ(plan_parameter(sequence, norm, 1).sum, GradientSum::Tp);
  EXPECT_EQ(plan_parameter(plain, head_norm, 1).sum, GradientSum::Tp);
  EXPECT_TRUE(plan_parameter(sequence, norm, 0).counted);
  EXPECT_FALSE(plan_parameter(sequence, norm, 1).counted);
  EXPECT_TRUE(plan_parameter(sequence, norm, 1).slice.is_whole());
  // With a single rank there is no gradient of another rank to add.
  EXPECT_EQ(plan_parameter(ShardPlan{1, true}, norm, 0).sum, GradientSum::None);
}

TEST(ShardPlan, SaysOnceWhatDoesNotDivide) {
  const std::vector<SplitTensor> tensors = {
      tensor("embed.weight", {1009, 10}), tensor("0.q.weight", {48, 10}),
      tensor("0.k.weight", {16, 10}),     tensor("0.o.weight", {10, 48}),
      tensor("0.up.weight", {40, 10}),    tensor("0.norm.weight", {10})};
  EXPECT_EQ(uneven_splits(ShardPlan{4, false}, tensors),
            (std::vector<std::string>{"vocabulary 1009 over tp 4: 253 252 252 252",
                                      "query heads 6 over tp 4: 2 1 2 1",
                                      "key heads 2 over tp 4: held by 2 2 ranks"}));
  EXPECT_EQ(uneven_splits(ShardPlan{3, false}, tensors).back(),
            "inner size 40 over tp 3: 14 13 13");
  EXPECT_TRUE(uneven_splits(ShardPlan{1, false}, tensors).empty());
}

TEST(ShardPlan, LayersMayHaveDifferentHeads) {
  const ShardPlan plan = {4, false};
  const SplitTensor k = tensor("1.k.weight", {32, 10}, {8, 4});
  EXPECT_EQ(plan_parameter(plan, k, 1).slice.offset[0], 8);
  EXPECT_EQ(plan_parameter(plan, k, 1).sum, GradientSum::None);
  EXPECT_EQ(uneven_splits(plan, {k, tensor("0.k.weight", {16, 10})}),
            std::vector<std::string>{"key heads 2 over tp 4: held by 2 2 ranks"});
}

}  // namespace
}  // namespace longhaul::layout
