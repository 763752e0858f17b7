#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "longhaul/checkpoint/reader.h"
#include "longhaul/checkpoint/saver.h"
#include "longhaul/comm/fake.h"
#include "longhaul/format/test_files.h"
#include "longhaul/train/state.h"

namespace longhaul::train {
namespace {

/// What a rank owns of three matrices, one of them frozen, and a vector.
struct Rank {
  Rank(int shard, int shards) {
    const ParameterClass plain{1.0, 0.0, false};
    const ParameterClass frozen{1.0, 0.0, true};
    const std::vector<FlatParameter> placed = {
        {make_parameter("embed", {100, 70}, {}), plain, 0},
        {make_parameter("a.norm", {16}, {}), plain, 1},
        {make_parameter("a.w", {300, 16}, {}), frozen, 1},
        {make_parameter("b.w", {160, 48}, {}), plain, 2}};
    flat = std::make_unique<FlatBuffers>(placed, DTypePolicy{DType::BF16}, at::kCPU,
                                         FlatSharding{shard, shards});
    optimizer = std::make_unique<optim::Optimizer>(
        *flat, OptimizerSection{}, optim::OptimizerInputs{{}, 0, {"a.w"}});
    optimizer->set_counts(optim::UpdateCounts(1));
  }
  ModelState state() { return {*flat, *optimizer}; }
  std::vector<at::Tensor> tensors() {
    std::vector<at::Tensor> all;
    for (const optim::BucketState& own : optimizer->states()) {
      for (const at::Tensor& t : {own.master, own.exp_avg, own.exp_avg_sq}) {
        if (t.defined()) all.push_back(t);
      }
    }
    return all;
  }
  /// Values that tell every element from its neighbours; padding stays what it is.
  void number() {
    double first = 1.0;
    const auto& buckets = flat->buckets();
    for (size_t i = 0; i < buckets.size(); ++i) {
      const optim::BucketState& own = optimizer->states()[i];
      for (const at::Tensor& t : {own.master, own.exp_avg, own.exp_avg_sq}) {
        if (!t.defined()) continue;
        for (const FlatPiece& piece : pieces_in(buckets[i], buckets[i].owned)) {
          const int64_t size = piece.in_member.size();
          t.narrow(0, piece.in_bucket - buckets[i].owned.begin, size)
              .copy_(at::arange(first, first + static_cast<double>(size), at::kFloat));
          first += static_cast<double>(size);
        }
      }
    }
  }

  std::unique_ptr<FlatBuffers> flat;
  std::unique_ptr<optim::Optimizer> optimizer;
};

TEST(StateRead, ComesBackStraightAndThroughLittleHostMemory) {
  const testing::TempDir dir;
  constexpr int kRanks = 3;
  comm::run_fake_ranks(kRanks, [&](const std::shared_ptr<comm::Communicator>& world) {
    Rank before(world->rank(), kRanks);
    before.number();
    std::vector<at::Tensor> storage;
    checkpoint::SaverOptions options;
    options.dir = dir.path();
    checkpoint::Snapshot snapshot;
    snapshot.step = 1;
    snapshot.tensors = capture_state(before.state(), storage);
    checkpoint::save_checkpoint(options, std::move(snapshot), *world);

    const auto reader = checkpoint::CheckpointReader::open(dir / "step_00000001", *world);
    // In one go; in batches of less than a tensor; of about a bucket.
    for (const std::optional<int64_t> staging :
         {std::optional<int64_t>(), {4000}, {40000}}) {
      Rank after(world->rank(), kRanks);
      const auto report = restore_state(after.state(), reader, *world, staging);
      EXPECT_GT(report.wanted, 0U);
      const auto wanted = before.tensors();
      const auto found = after.tensors();
      ASSERT_EQ(found.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(at::equal(found[i], wanted[i])) << i;
      }
      // The weights follow their masters.
      for (size_t i = 0; i < after.flat->buckets().size(); ++i) {
        const optim::BucketState& own = after.optimizer->states()[i];
        EXPECT_TRUE(at::equal(after.flat->buckets()[i].owned_weights,
                              own.master.to(at::kBFloat16)));
      }
    }
  });
}

TEST(StateRead, WhatHadNoUpdateBeginsWithZerosAndNeedsNoMomentsInTheFiles) {
  const testing::TempDir dir;
  constexpr int kRanks = 2;
  comm::run_fake_ranks(kRanks, [&](const std::shared_ptr<comm::Communicator>& world) {
    Rank before(world->rank(), kRanks);
    before.number();
    std::vector<at::Tensor> storage;
    checkpoint::SaverOptions options;
    options.dir = dir.path();
    checkpoint::Snapshot snapshot;
    snapshot.step = 1;
    snapshot.tensors = capture_state(before.state(), storage);
    std::erase_if(snapshot.tensors, [](const checkpoint::StateTensor& tensor) {
      return tensor.slice.name == "b.w" && tensor.kind != checkpoint::kWeight;
    });
    checkpoint::save_checkpoint(options, std::move(snapshot), *world);
    const auto reader = checkpoint::CheckpointReader::open(dir / "step_00000001", *world);

    for (const std::optional<int64_t> staging : {std::optional<int64_t>(), {4000}}) {
      Rank after(world->rank(), kRanks);
      after.number();  // of an earlier attempt
      after.optimizer->set_counts(optim::UpdateCounts(1, {{"b.w", 0}}));
      restore_state(after.state(), reader, *world, staging);
      for (size_t i = 0; i < after.flat->buckets().size(); ++i) {
        const Bucket& bucket = after.flat->buckets()[i];
        const optim::BucketState& own = after.optimizer->states()[i];
        const optim::BucketState& was = before.optimizer->states()[i];
        EXPECT_TRUE(at::equal(own.master, was.master)) << i;
        if (!own.exp_avg.defined()) continue;
        for (const FlatPiece& piece : pieces_in(bucket, bucket.owned)) {
          const auto cut = [&](const at::Tensor& t) {
            return t.narrow(0, piece.in_bucket - bucket.owned.begin,
                            piece.in_member.size());
          };
          const bool fresh = piece.member->parameter->name() == "b.w";
          for (const auto& [found, saved] : {std::pair(own.exp_avg, was.exp_avg),
                                             std::pair(own.exp_avg_sq, was.exp_avg_sq)}) {
            const at::Tensor wanted = fresh ? at::zeros_like(cut(saved)) : cut(saved);
            EXPECT_TRUE(at::equal(cut(found), wanted)) << piece.member->parameter->name();
          }
        }
      }
      // The same without the setting that it follows from is a damage.
      after.optimizer->set_counts(optim::UpdateCounts(1));
      EXPECT_THROW(restore_state(after.state(), reader, *world, staging), InputError);
    }
  });
}

}  // namespace
}  // namespace longhaul::train
