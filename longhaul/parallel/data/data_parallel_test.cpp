#include "longhaul/parallel/data/data_parallel.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/comm/backend.h"
#include "longhaul/ops/linear/linear.h"
#include "longhaul/parallel/data/unit_runner.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/parameters.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::parallel {
namespace {

struct Case {
  int ranks = 1;
  int shards = 1;  ///< ranks of a shard group
  bool grads = false;
  bool weights = false;
  format::DType reduce = format::DType::F32;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int shards : {1, 2, ranks}) {
      if (ranks % shards != 0) continue;
      for (const format::DType reduce : {format::DType::F32, format::DType::BF16}) {
        all.push_back({ranks, shards, false, false, reduce});
        if (shards == 1) continue;
        all.push_back({ranks, shards, true, false, reduce});
        all.push_back({ranks, shards, true, true, reduce});
      }
    }
  }
  return all;
}

/// The state of one rank: its groups, and two units with a matrix and a vector each.
struct Rank {
  Rank(comm::Communicator& world, const Case& c)
      : shard(world.split(world.rank() / c.shards, world.rank(), "shard")),
        replicas(world.split(world.rank() % c.shards, world.rank(), "replicas")),
        flat({{tensor::make_parameter("m0", {64, 64}, {}), {}, 0},
              {tensor::make_parameter("v0", {64}, {}), {}, 0},
              {tensor::make_parameter("m1", {64, 64}, {}), {}, 1},
              {tensor::make_parameter("v1", {64}, {}), {}, 1}},
             {format::DType::F32, format::DType::F32, format::DType::F32,
              format::DType::F32, c.reduce},
             at::kCPU,
             {shard->rank(), shard->size(), replicas->rank(), replicas->size(), c.grads,
              c.weights}),
        data(flat, {shard.get(), replicas.get(), {}, nullptr, nullptr}) {}

  tensor::Bucket& unit(int number) {
    for (tensor::Bucket& bucket : flat.buckets()) {
      if (bucket.unit == number) return bucket;
    }
    throw std::logic_error("no such unit");
  }
  void add(int number, double value) {
    unit(number).settle_grads();
    unit(number).grads.add_(value);
  }

  std::unique_ptr<comm::Communicator> shard, replicas;
  tensor::FlatBuffers flat;
  DataParallel data;
};

TEST(DataParallel, SumsGradientsOverRanksAndMicroBatches) {
  for (const Case& c : cases()) {
    comm::run_fake_ranks(c.ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
      Rank rank(*world, c);
      for (int micro = 0; micro < 3; ++micro) {
        for (const int unit : {1, 0}) {
          rank.data.open_gradients(unit);
          rank.add(unit, world->rank() + 1.0);
          rank.data.close_gradients(unit, micro == 2);
        }
        rank.add(layout::kResidentUnit, world->rank() + 1.0);
      }
      rank.data.finish_gradients();
      const double sum = 3 * c.ranks * (c.ranks + 1) / 2.0;
      for (const tensor::Bucket& bucket : rank.flat.buckets()) {
        EXPECT_EQ(bucket.owned.size(), bucket.num_elements / c.shards);
        EXPECT_TRUE(bucket.owned_grads.eq(sum).all().item<bool>()) << bucket.unit;
      }
    });
  }
}

TEST(DataParallel, TheFirstRanksGradientCountsWhereEachHasFormedTheWhole) {
  comm::run_fake_ranks(3, [&](const std::shared_ptr<comm::Communicator>& world) {
    const auto alone = comm::self_world("alone");
    tensor::FlatParameter norm{tensor::make_parameter("norm", {64}, {}), {}, 0};
    norm.sum_group = layout::kTensorFirst;
    tensor::FlatBuffers flat({norm},
                             {format::DType::F32, format::DType::F32, format::DType::F32,
                              format::DType::F32, format::DType::BF16},
                             at::kCPU, {});
    DataGroups groups{alone.get(), alone.get(), {}, nullptr, nullptr};
    groups.sums.resize(layout::kSumGroups);
    groups.sums.at(layout::kTensorFirst - 1) = world.get();
    DataParallel data(flat, groups);
    tensor::Bucket& bucket = flat.buckets().at(0);
    bucket.settle_grads();
    // The value has more digits than bf16, the dtype of sums over ranks, so that a sum
    // would round it.
    const float first = 1.00001F;
    bucket.grads.fill_(world->rank() == 0 ? first : 3.0F);
    data.finish_gradients();
    EXPECT_EQ(bucket.owned_grads.min().item<float>(), first);
    EXPECT_EQ(bucket.owned_grads.max().item<float>(), first);
  });
}

TEST(DataParallel, TablesAtBothEndsShareTheMemoryOfTheirWholeGradients) {
  comm::run_fake_ranks(2, [&](const std::shared_ptr<comm::Communicator>& world) {
    const auto alone = comm::self_world("replicas");
    tensor::FlatBuffers flat({{tensor::make_parameter("embedding", {128, 64}, {}), {}, 0},
                              {tensor::make_parameter("block", {64, 64}, {}), {}, 1},
                              {tensor::make_parameter("head", {128, 64}, {}), {}, 2}},
                             {format::DType::F32, format::DType::F32, format::DType::F32,
                              format::DType::F32, format::DType::F32},
                             at::kCPU, {world->rank(), 2, 0, 1, true, false});
    DataParallel data(flat, {world.get(), alone.get(), {}, nullptr, nullptr});
    const int64_t before = flat.bytes();
    for (const bool last : {false, true}) {
      for (const int unit : {2, 1, 0}) {
        data.open_gradients(unit);
        data.close_gradients(unit, last);
      }
    }
    data.finish_gradients();
    EXPECT_EQ(flat.bytes() - before, 4 * (128 + 64) * 64);
  });
}

TEST(DataParallel, GivesEveryRankWhatTheOwnersWrote) {
  for (const Case& c : cases()) {
    comm::run_fake_ranks(c.ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
      Rank rank(*world, c);
      for (int step = 1; step <= 2; ++step) {
        for (tensor::Bucket& bucket : rank.flat.buckets()) {
          bucket.owned_weights.fill_(step * 10 + rank.shard->rank());
        }
        rank.data.share_weights();
        for (const int unit : {0, 1, 0}) {
          rank.data.need(unit);
          for (const int number : {unit, layout::kResidentUnit}) {
            const tensor::Bucket& bucket = rank.unit(number);
            for (int s = 0; s < c.shards; ++s) {
              const layout::FlatRange part =
                  layout::FlatRange{0, bucket.num_elements}.part(s, c.shards);
              EXPECT_TRUE(bucket.weights.narrow(0, part.begin, part.size())
                              .eq(step * 10 + s)
                              .all()
                              .item<bool>());
            }
          }
          rank.data.release(unit);
          EXPECT_EQ(rank.unit(unit).weights.defined(), !c.weights);
        }
      }
    });
  }
}

/// Returns the plan of two micro batches through two units. The gathered weights of a
/// unit are held from its forward to its backward.
layout::UnitPlan plan_of(const Case& c) {
  using Kind = layout::PipelineAction::Kind;
  layout::UnitPlan plan;
  for (int micro = 0; micro < 2; ++micro) {
    plan.weights.push_back({Kind::Forward, 0, {0, 1}, {}});
    plan.weights.push_back({Kind::Forward, 1, {}, {}});
    plan.weights.push_back({Kind::Backward, 1, {}, {1}});
    plan.weights.push_back({Kind::Backward, 0, {}, {0}});
    for (const int unit : {1, 0}) {
      plan.gradients.push_back({unit, c.grads || micro == 1, micro == 1});
    }
  }
  return plan;
}

/// Runs two linear units over some micro batches. Returns the owned gradients by bucket.
std::vector<at::Tensor> train(comm::Communicator& world, const Case& c, bool units,
                              bool delayed = false) {
  Rank rank(world, c);
  for (tensor::Bucket& bucket : rank.flat.buckets()) {
    const at::Tensor values = at::arange(bucket.num_elements).sin();
    bucket.owned_weights.copy_(values.narrow(0, bucket.owned.begin, bucket.owned.size()));
  }
  rank.data.share_weights();
  const auto queue = std::make_shared<ops::WeightGradients>();
  queue->set_immediate(!delayed);
  UnitRunner runner(rank.data);
  const layout::UnitPlan plan = plan_of(c);
  if (units) runner.begin(plan);
  for (int micro = 0; micro < 2; ++micro) {
    // The values come from no random generator, since ranks are threads here, which would
    // share it.
    const at::Tensor values = (at::arange(8 * 64) * (micro + 1.7)).cos().view({8, 64});
    const at::Tensor x = ops::leaf(values * (world.rank() + 1));
    at::Tensor y = x;
    for (int unit = 0; unit < 2; ++unit) {
      const tensor::ParameterPtr weight = rank.unit(unit).members[0].parameter;
      if (units) {
        y = runner.enter(unit, {y}, queue)[0];
      } else {
        rank.data.need(unit);
      }
      y = ops::linear(ops::LinearInput{y, nullptr}, weight, queue);
      if (units) y = runner.leave(unit, {y}, queue)[0];
    }
    ops::backward(y, at::ones_like(y));
    queue->drain();
  }
  if (units) {
    runner.end();
  } else {
    rank.data.finish_gradients();
  }
  std::vector<at::Tensor> owned;
  for (const tensor::Bucket& bucket : rank.flat.buckets()) {
    owned.push_back(bucket.owned_grads.clone());
  }
  return owned;
}

TEST(UnitRunner, GivesTheGradientsOfPlainBlocks) {
  for (const int zero : {0, 1, 2, 3}) {
    comm::run_fake_ranks(2, [&](const std::shared_ptr<comm::Communicator>& world) {
      const Case c{2, zero == 0 ? 1 : 2, zero >= 2, zero == 3};
      const auto plain = train(*world, {2, c.shards}, false);
      const auto wrapped = train(*world, c, true);
      const auto delayed = train(*world, c, true, true);
      for (size_t i = 0; i < plain.size(); ++i) {
        ops::expect_close(wrapped[i], plain[i], 1e-6, "bucket " + std::to_string(i));
        EXPECT_TRUE(at::equal(delayed[i], wrapped[i])) << "bucket " << i;
      }
    });
  }
}

TEST(UnitRunner, AUseThatThePlanDoesNotHaveNextIsRefused) {
  comm::run_fake_ranks(1, [&](const std::shared_ptr<comm::Communicator>& world) {
    Rank rank(*world, {});
    UnitRunner runner(rank.data);
    const layout::UnitPlan plan = plan_of({});
    runner.begin(plan);
    EXPECT_HAS(message_of<Error>([&] { runner.use(1); }),
               "unit 1 is used out of its turn");
    EXPECT_HAS(message_of<Error>([&] { runner.close(0); }),
               "gradients of unit 0 come out");
    EXPECT_HAS(message_of<Error>([&] { runner.end(); }),
               "a step ended after 0 of 8 uses");
  });
}

}  // namespace
}  // namespace longhaul::parallel
