#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <tuple>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/checkpoint/write/background_saver.h"
#include "longhaul/session/state_reader.h"
#include "longhaul/train/save/state_capture.h"
#include "longhaul/train/save/state_read.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/weights_files.h"

namespace longhaul::train {
namespace {

/// What a rank owns of three matrices, of which one is frozen, and of a vector.
struct Rank {
  Rank(int shard, int shards) {
    const tensor::ParameterClass plain{1.0, 0.0, false};
    const tensor::ParameterClass frozen{1.0, 0.0, true};
    const std::vector<tensor::FlatParameter> placed = {
        {tensor::make_parameter("embed", {100, 70}, {}), plain, 0},
        {tensor::make_parameter("a.norm", {16}, {}), plain, 1},
        {tensor::make_parameter("a.w", {300, 16}, {}), frozen, 1},
        {tensor::make_parameter("b.w", {160, 48}, {}), plain, 2}};
    flat = std::make_unique<tensor::FlatBuffers>(
        placed, tensor::DTypePolicy{format::DType::BF16}, at::kCPU,
        layout::FlatSharding{shard, shards});
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
  /// Gives every element a value that differs from its neighbours'; padding is left
  /// alone.
  void number() {
    double first = 1.0;
    const auto& buckets = flat->buckets();
    for (size_t i = 0; i < buckets.size(); ++i) {
      const optim::BucketState& own = optimizer->states()[i];
      for (const at::Tensor& t : {own.master, own.exp_avg, own.exp_avg_sq}) {
        if (!t.defined()) continue;
        for (const tensor::FlatPiece& piece :
             tensor::pieces_in(buckets[i], buckets[i].owned)) {
          const int64_t size = piece.in_member.size();
          t.narrow(0, piece.in_bucket - buckets[i].owned.begin, size)
              .copy_(at::arange(first, first + static_cast<double>(size), at::kFloat));
          first += static_cast<double>(size);
        }
      }
    }
  }

  std::unique_ptr<tensor::FlatBuffers> flat;
  std::unique_ptr<optim::Optimizer> optimizer;
};

/// Saves a checkpoint of step 1; leaves out the moments of a tensor where one is named.
/// Collective.
void save_step_one(Rank& rank, const fs::path& dir, comm::Communicator& world,
                   const std::string& without_moments = {}) {
  checkpoint::SaverOptions options;
  options.dir = dir;
  options.read_back = false;
  checkpoint::Snapshot snapshot = StateCapture().capture(rank.state());
  snapshot.step = 1;
  std::erase_if(snapshot.tensors, [&](const checkpoint::StateTensor& tensor) {
    return tensor.slice.name == without_moments && tensor.kind != checkpoint::kWeight;
  });
  checkpoint::save_checkpoint(options, std::move(snapshot), world);
}

TEST(StateRead, ComesBackStraightAndThroughLittleHostMemory) {
  const testing::TempDir dir;
  constexpr int kRanks = 3;
  comm::run_fake_ranks(kRanks, [&](const std::shared_ptr<comm::Communicator>& world) {
    Rank before(world->rank(), kRanks);
    before.number();
    save_step_one(before, dir.path(), *world);

    const auto reader = checkpoint::CheckpointReader::open(dir / "step_00000001", *world);
    // Reads at once, in batches of less than a tensor, and in batches of about a bucket.
    for (const std::optional<int64_t> staging :
         {std::optional<int64_t>(), {4000}, {40000}}) {
      Rank after(world->rank(), kRanks);
      const auto report =
          restore_state(after.state(), reader, "a checkpoint", *world, staging);
      EXPECT_GT(report.wanted, 0U);
      const auto wanted = before.tensors();
      const auto found = after.tensors();
      ASSERT_EQ(found.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(at::equal(found[i], wanted[i])) << i;
      }
      // The weights are the masters, rounded to bf16.
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
    save_step_one(before, dir.path(), *world, "b.w");
    const auto reader = checkpoint::CheckpointReader::open(dir / "step_00000001", *world);

    for (const std::optional<int64_t> staging : {std::optional<int64_t>(), {4000}}) {
      Rank after(world->rank(), kRanks);
      after.number();  // moments that an earlier attempt has left
      after.optimizer->set_counts(optim::UpdateCounts(1, {{"b.w", 0}}));
      restore_state(after.state(), reader, dir.path().string(), *world, staging);
      for (size_t i = 0; i < after.flat->buckets().size(); ++i) {
        const tensor::Bucket& bucket = after.flat->buckets()[i];
        const optim::BucketState& own = after.optimizer->states()[i];
        const optim::BucketState& was = before.optimizer->states()[i];
        EXPECT_TRUE(at::equal(own.master, was.master)) << i;
        if (!own.exp_avg.defined()) continue;
        for (const tensor::FlatPiece& piece : tensor::pieces_in(bucket, bucket.owned)) {
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
      // If the parameter counts as updated, its missing moments are damage.
      after.optimizer->set_counts(optim::UpdateCounts(1));
      EXPECT_THROW(
          restore_state(after.state(), reader, dir.path().string(), *world, staging),
          InputError);
    }
  });
}

/// Writes a directory with the parameters of Rank: all ones, except for two elements of
/// one parameter.
void write_ones_but(const fs::path& dir, const std::string& name, size_t place) {
  format::SafetensorsPlan plan;
  const Rank whole(0, 1);
  for (const tensor::Bucket& bucket : whole.flat->buckets()) {
    for (const tensor::FlatMember& member : bucket.members) {
      const format::TensorSlice slice = member.parameter->slice();
      plan.add(slice.name, format::DType::F32, slice.global_shape);
    }
  }
  format::SafetensorsWriter writer(dir / "model.safetensors", plan);
  for (const format::SafetensorsEntry& entry : plan.entries) {
    std::vector<float> values((entry.end - entry.begin) / 4, 1.0F);
    if (entry.name == name) values[place] = values.back() = -HUGE_VALF;
    writer.append(std::as_bytes(std::span(values)));
  }
  writer.finish();
}

TEST(StateRead, AnInfiniteWeightOfFilesIsNamedAlikeOnEveryRank) {
  // The cases put the value -inf into the first rank's share, into the last rank's share,
  // and into a frozen tensor.
  const std::tuple<const char*, size_t, const char*> cases[] = {
      {"embed", 3, "embed[0, 3] is -inf"},
      {"embed", 98 * 70 + 69, "embed[98, 69] is -inf"},
      {"a.w", 16, "a.w[1, 0] is -inf"}};
  constexpr int kRanks = 3;
  for (const auto& [name, place, words] : cases) {
    const testing::TempDir dir;
    write_ones_but(dir.path(), name, place);
    comm::run_fake_ranks(kRanks, [&](const std::shared_ptr<comm::Communicator>& world) {
      Rank rank(world->rank(), kRanks);
      const auto source = checkpoint::WeightsSource::open(dir.path(), *world);
      EXPECT_HAS(
          message_of<InputError>([&] { load_weights(rank.state(), *source, *world); }),
          words);
      EXPECT_HAS(message_of<InputError>(
                     [&] { session::load_weights(*rank.flat, *source, *world); }),
                 words);
    });
  }
}

TEST(StateRead, AnInfiniteWeightOfACheckpointIsNamedAlikeOnEveryRank) {
  const testing::TempDir dir;
  constexpr int kRanks = 3;
  comm::run_fake_ranks(kRanks, [&](const std::shared_ptr<comm::Communicator>& world) {
    Rank before(world->rank(), kRanks);
    before.number();
    if (world->rank() == 2)
      before.optimizer->states()[0].master.narrow(0, 5, 1).fill_(HUGE_VAL);
    save_step_one(before, dir.path(), *world);
    const auto reader = checkpoint::CheckpointReader::open(dir / "step_00000001", *world);
    for (const std::optional<int64_t> staging : {std::optional<int64_t>(), {4000}}) {
      Rank after(world->rank(), kRanks);
      const std::string said = message_of<InputError>(
          [&] { restore_state(after.state(), reader, "runs/a", *world, staging); });
      EXPECT_HAS(said, "[values] runs/a: ");
      EXPECT_HAS(said, "] is inf");
    }
  });
}

}  // namespace
}  // namespace longhaul::train
