#include "longhaul/tensor/flat_buffers.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

std::vector<ParameterPtr> parameters() {
  return {make_parameter("embed", {100, 16}, {}), make_parameter("a.norm", {16}, {}),
          make_parameter("a.w", {48, 16}, {}), make_parameter("b.norm", {16}, {}),
          make_parameter("b.w", {16, 48}, {})};
}

std::vector<ParameterClass> classes() {
  const ParameterClass decayed{1.0, 0.1, false};
  const ParameterClass plain{1.0, 0.0, false};
  return {decayed, plain, decayed, plain, decayed};
}

FlatBuffers make(int shards, int64_t max = 1 << 20) {
  return FlatBuffers(parameters(), classes(), {DType::BF16}, at::kCPU, shards, max);
}

TEST(FlatBuffers, NeverMixClassesAndFillInBackwardOrder) {
  const FlatBuffers flat = make(1);
  ASSERT_EQ(flat.buckets().size(), 2U);
  const Bucket& decayed = flat.buckets()[0];
  ASSERT_EQ(decayed.members.size(), 3U);
  EXPECT_EQ(decayed.members[0].parameter->name(), "b.w");
  EXPECT_EQ(decayed.members[2].parameter->name(), "embed");
  EXPECT_EQ(decayed.kind.weight_decay, 0.1);
  EXPECT_EQ(flat.buckets()[1].members[0].parameter->name(), "b.norm");
}

TEST(FlatBuffers, ViewsAreWindowsOfTheBuckets) {
  FlatBuffers flat = make(1);
  Bucket& bucket = flat.buckets()[0];
  bucket.grads.fill_(3.0);
  const FlatMember& member = bucket.members[1];
  EXPECT_EQ(member.parameter->grad().sum().item<float>(), 3.0F * 48 * 16);
  EXPECT_EQ(member.parameter->weight().scalar_type(), at::kBFloat16);
  EXPECT_EQ(member.parameter->grad().scalar_type(), at::kFloat);
  EXPECT_EQ(member.begin % kFlatAlign, 0);
  flat.zero_grads();
  EXPECT_EQ(member.parameter->grad().abs().sum().item<float>(), 0.0F);
}

TEST(FlatBuffers, ShardsAreEqualAlignedAndCoverEverything) {
  for (const int shards : {1, 2, 3, 4}) {
    const FlatBuffers flat = make(shards);
    for (const Bucket& bucket : flat.buckets()) {
      int64_t covered = 0;
      for (const FlatMember& member : bucket.members) {
        for (int s = 0; s < shards; ++s) {
          EXPECT_EQ(bucket.shard(s, shards).begin % kFlatAlign, 0);
          covered += Bucket::overlap(member, bucket.shard(s, shards)).size();
        }
        covered -= member.num_elements;
      }
      EXPECT_EQ(covered, 0);
    }
  }
}

TEST(FlatBuffers, LargeTensorsGetBucketsOfTheirOwn) {
  const FlatBuffers flat = make(1, 1024);
  EXPECT_EQ(flat.buckets().size(), 5U);
}

}  // namespace
}  // namespace longhaul
