#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "longhaul/comm/fake.h"
#include "longhaul/ops/linear.h"
#include "longhaul/ops/ops_test_support.h"
#include "longhaul/ops/swiglu.h"
#include "longhaul/parallel/data/data_parallel.h"
#include "longhaul/parallel/pipeline/schedule.h"
#include "longhaul/parallel/recompute/recompute.h"

namespace longhaul::parallel {
namespace {

TEST(Recompute, GivesTheSameBitsAsRunningPlainly) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({40, 32}), w = at::randn({32, 32}),
                   dy = at::randn({40, 32});
  const auto run = [&](bool again) {
    const auto weight = ops::bound(w);
    const auto queue = std::make_shared<ops::WeightGradients>();
    const nn::BlockFunction block = [&](const at::Tensor& in) {
      const at::Tensor y = ops::linear(in, weight, queue);
      return ops::swiglu(y, ops::linear(y, weight, queue), true);
    };
    const at::Tensor in = ops::leaf(x);
    const at::Tensor out = again ? recompute(block, in) : block(in);
    ops::backward(out, dy);
    return std::vector<at::Tensor>{out.detach(), in.grad(), weight->grad()};
  };
  const auto plain = run(false);
  const auto again = run(true);
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(at::equal(plain[i], again[i])) << i;
}

struct Recorder : StageActions {
  std::string text;
  void forward(int64_t m) override { text += "F" + std::to_string(m); }
  void backward(int64_t m) override { text += "B" + std::to_string(m); }
  void weight_gradients() override { text += "W"; }
  void reduce_gradients() override { text += "R"; }
};

TEST(Schedule, OneStageRunsEachMicroBatchWholeAndReducesOnce) {
  Recorder recorder;
  execute(single_stage_schedule(3), recorder);
  EXPECT_EQ(recorder.text, "F0B0WF1B1WF2B2WR");
}

/// Gradients of rank r are r + 1 everywhere.
void check_sums(int ranks, int zero, DType reduce) {
  comm::run_fake_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& group) {
    comm::Communicator& world = *group;
    FlatBuffers flat({make_parameter("w", {3000}, {}), make_parameter("v", {70, 9}, {})},
                     {{1.0, 0.1, false}, {1.0, 0.0, false}},
                     {DType::BF16, DType::F32, DType::F32, DType::F32, reduce}, at::kCPU,
                     world.size());
    DataParallel replicas(flat, world, zero);
    for (Bucket& bucket : flat.buckets()) bucket.grads.fill_(world.rank() + 1.0);
    replicas.reduce_gradients();
    const double sum = ranks * (ranks + 1) / 2.0;
    for (Bucket& bucket : flat.buckets()) {
      const FlatRange own = replicas.owned(bucket);
      EXPECT_EQ(own.size(),
                zero == 0 ? bucket.num_elements : bucket.num_elements / ranks);
      const at::Tensor mine = bucket.grads.narrow(0, own.begin, own.size());
      EXPECT_TRUE(mine.eq(sum).all().item<bool>());
      // The owners write; everybody has it after sharing.
      bucket.weights.narrow(0, own.begin, own.size())
          .fill_(zero == 0 ? 5.0 : world.rank());
    }
    replicas.share_weights();
    for (Bucket& bucket : flat.buckets()) {
      for (int r = 0; r < ranks; ++r) {
        const FlatRange part = bucket.shard(r, ranks);
        const double expected = zero == 0 ? 5.0 : r;
        EXPECT_TRUE(bucket.weights.narrow(0, part.begin, part.size())
                        .eq(expected)
                        .all()
                        .item<bool>());
      }
    }
  });
}

TEST(DataParallel, SumsGradientsAndSharesWeights) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int zero : {0, 1}) {
      check_sums(ranks, zero, DType::F32);
      check_sums(ranks, zero, DType::BF16);
    }
  }
}

}  // namespace
}  // namespace longhaul::parallel
