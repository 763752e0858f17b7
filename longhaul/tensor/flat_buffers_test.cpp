#include "longhaul/tensor/flat_buffers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "longhaul/base/error.h"

namespace longhaul::tensor {
namespace {

/// Returns an embedding and two blocks, each of a norm and a matrix: units 0, 1 and 2.
std::vector<FlatParameter> parameters() {
  const ParameterClass decayed{1.0, 0.1, false};
  const ParameterClass plain{1.0, 0.0, false};
  return {{make_parameter("embed", {100, 16}, {}), decayed, 0},
          {make_parameter("a.norm", {16}, {}), plain, 1},
          {make_parameter("a.w", {48, 16}, {}), decayed, 1},
          {make_parameter("b.norm", {16}, {}), plain, 2},
          {make_parameter("b.w", {16, 48}, {}), plain, 2},
          {make_parameter("b.v", {16, 48}, {}), decayed, 2}};
}

FlatBuffers make(const layout::FlatSharding& sharding = {}, int64_t max = 1 << 20) {
  return FlatBuffers(parameters(), {format::DType::BF16}, at::kCPU, sharding, max);
}

TEST(FlatBuffers, FillUnitsInBackwardOrderAndKeepVectorsTogether) {
  const FlatBuffers flat = make();
  ASSERT_EQ(flat.buckets().size(), 4U);
  EXPECT_EQ(flat.buckets()[0].unit, 2);
  EXPECT_EQ(flat.buckets()[0].members[0].parameter->name(), "b.v");
  EXPECT_EQ(flat.buckets()[0].members[1].parameter->name(), "b.w");
  EXPECT_EQ(flat.buckets()[0].members[0].kind.weight_decay, 0.1);
  EXPECT_EQ(flat.buckets()[1].unit, layout::kResidentUnit);
  EXPECT_EQ(flat.buckets()[1].members.size(), 2U);
  EXPECT_EQ(flat.buckets()[2].unit, 1);
  EXPECT_EQ(flat.buckets()[3].unit, 0);
}

TEST(FlatBuffers, NeverMixFrozenSumGroupsOrCopies) {
  auto placed = parameters();
  placed[4].kind.frozen = true;
  placed[3].sum_group = 1;
  placed[1].counted = false;
  const FlatBuffers flat(placed, {format::DType::BF16}, at::kCPU);
  ASSERT_EQ(flat.buckets().size(), 6U);
  for (const Bucket& bucket : flat.buckets()) {
    const std::string& name = bucket.members[0].parameter->name();
    EXPECT_EQ(bucket.frozen, name == "b.w");
    EXPECT_EQ(bucket.frozen, !bucket.grads.defined());
    EXPECT_EQ(bucket.sum_group, name == "b.norm" ? 1 : 0);
    EXPECT_EQ(bucket.saved.size() == 0, name == "a.norm");
  }
}

TEST(FlatBuffers, ViewsAreWindowsOfTheBuckets) {
  FlatBuffers flat = make();
  Bucket& bucket = flat.buckets()[0];
  bucket.grads.fill_(3.0);
  const FlatMember& member = bucket.members[1];
  EXPECT_EQ(member.parameter->grad().sum().item<float>(), 3.0F * 48 * 16);
  EXPECT_EQ(member.parameter->weight().scalar_type(), at::kBFloat16);
  EXPECT_EQ(member.parameter->grad().scalar_type(), at::kFloat);
  EXPECT_EQ(member.begin % layout::kFlatAlign, 0);
  flat.zero_grads();
  EXPECT_EQ(member.parameter->grad().abs().sum().item<float>(), 0.0F);
}

TEST(FlatBuffers, WhatIsUnsetReadsAsZerosHoweverItIsRead) {
  for (const bool stay : {true, false}) {
    FlatBuffers flat = make({0, 2, 0, 1, /*grads=*/!stay, /*weights=*/true});
    Bucket& bucket = flat.buckets().front();
    ASSERT_EQ(bucket.grads_stay, stay);
    ASSERT_EQ(bucket.members.size(), 2U);
    flat.hold_grads(bucket);
    for (const FlatMember& member : bucket.members) {
      at::Tensor(member.parameter->grad()).fill_(NAN);
    }
    if (stay) {
      flat.zero_grads();
    } else {
      bucket.grads.fill_(NAN);  // the padding too: such memory is of any content
      flat.release_grads(bucket);
      flat.hold_grads(bucket);
    }
    const Parameter& first = *bucket.members.front().parameter;
    EXPECT_TRUE(first.grad_unset());
    flat.hold_weights(bucket);  // binds the handles again
    EXPECT_EQ(first.grad().abs().sum().item<float>(), 0.0F);
    EXPECT_FALSE(first.grad_unset());
    at::Tensor(first.grad()).fill_(2.0);
    flat.release_weights(bucket);
    bucket.settle_grads();
    EXPECT_EQ(bucket.grads.sum().item<double>(),
              2.0 * static_cast<double>(first.grad().numel()));
  }
}

TEST(FlatBuffers, SavedPartsOfAllRanksAreAlignedAndCoverEachElementOnce) {
  for (const auto& [shards, replicas] :
       {std::pair(1, 1), {2, 1}, {3, 1}, {1, 3}, {2, 2}}) {
    std::map<std::string, std::vector<int>> seen;
    for (int rank = 0; rank < shards * replicas; ++rank) {
      const FlatBuffers flat =
          make({rank % shards, shards, rank / shards, replicas, true, true});
      for (const Bucket& bucket : flat.buckets()) {
        EXPECT_EQ(bucket.saved.begin % layout::kFlatAlign, 0);
        EXPECT_EQ(bucket.owned_weights.numel(), bucket.owned.size());
        EXPECT_EQ(bucket.owned_grads.numel(), bucket.owned.size());
        for (const FlatMember& member : bucket.members) {
          auto& counts = seen[member.parameter->name()];
          counts.resize(static_cast<size_t>(member.num_elements));
          const layout::FlatRange part = Bucket::overlap(member, bucket.saved);
          for (int64_t i = part.begin; i < part.end; ++i) {
            ++counts[static_cast<size_t>(i)];
          }
        }
      }
    }
    for (const auto& [name, counts] : seen) {
      for (const int count : counts) ASSERT_EQ(count, 1) << name;
    }
  }
}

TEST(FlatBuffers, ReleasedUnitsHaveNoStorageAndAnAccessSaysSo) {
  FlatBuffers flat = make({0, 2, 0, 1, true, true});
  Bucket& bucket = flat.buckets()[0];
  const ParameterPtr parameter = bucket.members[0].parameter;
  EXPECT_THROW(parameter->weight(), Error);
  EXPECT_THROW(parameter->grad(), Error);
  const int64_t sharded = flat.bytes();
  flat.hold_weights(bucket);
  flat.hold_grads(bucket);
  EXPECT_EQ(parameter->weight().sizes(), at::IntArrayRef({16, 48}));
  EXPECT_EQ(parameter->grad().abs().sum().item<float>(), 0.0F);
  parameter->grad().data_ptr<float>()[0] = 7.0F;
  const void* memory = bucket.grads.data_ptr();
  const int64_t held = flat.bytes();
  EXPECT_EQ(held - sharded, bucket.num_elements * (2 + 4));
  flat.release_weights(bucket);
  flat.release_grads(bucket);
  EXPECT_THROW(parameter->weight(), Error);
  // The bucket gets the memory that it had before, and its gradients are zeros again.
  flat.hold_grads(bucket);
  EXPECT_EQ(bucket.grads.data_ptr(), memory);
  EXPECT_EQ(parameter->grad().abs().sum().item<float>(), 0.0F);
  EXPECT_EQ(flat.bytes(), held);
  // The weights of a bucket of vectors are never released.
  EXPECT_EQ(flat.buckets()[1].members[0].parameter->weight().numel(), 16);
}

TEST(FlatBuffers, LargeTensorsGetBucketsOfTheirOwn) {
  const FlatBuffers flat = make({}, 1024);
  EXPECT_EQ(flat.buckets().size(), 6U);
}

TEST(FlatBuffers, KeepJointMatricesInOneBucketWhateverItsSize) {
  auto placed = parameters();
  placed.pop_back();
  // A matrix marked as joint goes into the bucket of the matrix before it. The vector
  // b.k_bias stands between two such matrices, which share a bucket all the same.
  for (const char* name : {"b.k", "b.k_bias", "b.v", "b.o"}) {
    const bool vector = std::string(name) == "b.k_bias";
    placed.push_back(
        {make_parameter(
             name, vector ? std::vector<int64_t>{16} : std::vector<int64_t>{64, 16}, {}),
         {},
         2});
  }
  const auto buckets_of_unit = [&](const char* frozen) {
    for (FlatParameter& p : placed) {
      const std::string& name = p.parameter->name();
      p.joint = name == "b.k" || name == "b.v";
      p.kind.frozen = name == frozen;
    }
    const FlatBuffers flat(placed, {format::DType::BF16}, at::kCPU, {}, 1024);
    std::vector<std::string> names;
    for (const Bucket& bucket : flat.buckets()) {
      if (bucket.unit != 2) continue;
      names.emplace_back();
      for (const FlatMember& m : bucket.members)
        names.back() += m.parameter->name() + ' ';
    }
    return names;
  };
  EXPECT_EQ(buckets_of_unit(""), (std::vector<std::string>{"b.o ", "b.v b.k b.w "}));
  EXPECT_EQ(buckets_of_unit("b.k"),
            (std::vector<std::string>{"b.o ", "b.v ", "b.k ", "b.w "}));
}

}  // namespace
}  // namespace longhaul::tensor
