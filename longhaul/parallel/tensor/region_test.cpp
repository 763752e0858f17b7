#include "longhaul/parallel/tensor/region.h"

#include <ATen/ATen.h>
#include <c10/core/StorageImpl.h>

#include <map>
#include <mutex>

#include "longhaul/comm/over_host.h"
#include "longhaul/nn/attention.h"
#include "longhaul/nn/feed_forward.h"
#include "longhaul/tensor/init.h"
#include "tests/support/apply_ranks.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/network_forms.h"
#include "tests/support/parameters.h"

namespace longhaul::parallel {
namespace {

using comm::Communicator;

/// The bytes of the whole tensor in each call of a collective, by the collective's name.
using Counts = std::map<std::string, std::vector<size_t>>;

/// What happens, in order: operations start, are ordered, and gradients are computed.
using Events = std::vector<std::string>;

/// An operation that notes when it is ordered.
class NotedWork : public comm::Work {
 public:
  NotedWork(comm::WorkPtr work, Events& events)
      : work_(std::move(work)), events_(events) {}
  void wait() override { work_->wait(); }
  bool test() override { return work_->test(); }
  void order() override {
    events_.emplace_back("order");
    work_->order();
  }

 private:
  comm::WorkPtr work_;
  Events& events_;
};

/// Passes operations on, and notes their bytes and their order.
class Counting : public comm::OverHost {
 public:
  explicit Counting(Communicator& inner) : OverHost(comm::borrowed(inner)) {}
  comm::WorkPtr start(comm::Request request) override {
    counts[comm::verb_name(request.verb)].push_back(request.bytes());
    events.emplace_back(comm::verb_name(request.verb));
    return std::make_unique<NotedWork>(host().start(std::move(request)), events);
  }
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    return host().split(color, key, std::move(name));
  }

  Counts take() { return std::exchange(counts, {}); }
  Counts counts;
  Events events;
};

constexpr int64_t kTokens = 24, kHidden = 32;

/// An attention and a feed-forward layer, cut for one rank, with values.
struct Layer {
  Layer(Communicator& tp, bool sequence) {
    const std::vector<tensor::ParameterPtr> all = parameters.units().front().parameters;
    apply_shard_plan(all, {tp.size(), sequence}, tp.rank());
    // The weights lie side by side, so that those with one input are one product.
    const at::Tensor weights = at::empty({8 * 48 * kHidden}),
                     gradients = at::zeros_like(weights);
    int64_t from = 0;
    for (const tensor::ParameterPtr& p : all) {
      const auto own = [&](const at::Tensor& all_values) {
        const auto& extent = p->slice().extent;
        return all_values.narrow(0, from, extent[0] * extent[1]).view(extent);
      };
      const at::Tensor values = own(weights);
      tensor::initial_values(p->slice(), {}, 1, 0, values.numel(),
                             values.data_ptr<float>());
      p->set_frozen(false);
      p->bind(values, own(gradients));
      from += values.numel();
    }
    nn::RopeTables tables(kTokens, at::kCPU);
    attention.prepare(tables);
    context.batch.rows = 1;
    context.batch.seq = kTokens;
    context.batch.positions = at::arange(kTokens, at::kInt);
    context.weight_gradients = std::make_shared<ops::WeightGradients>();
  }
  at::Tensor forward(const at::Tensor& x) const {
    return feed_forward.forward(attention.forward(x, context), context);
  }
  static UnitDescription describe() {
    using Unit = format::ShardUnit;
    constexpr format::Heads kHeads = {4, 2};
    UnitDescription unit;
    unit.parameters = {
        {"a.q_proj.weight", {32, kHidden}, {}, {{Unit::QueryHeads, 0, kHeads}}},
        {"a.k_proj.weight", {16, kHidden}, {}, {{Unit::KeyHeads, 0, kHeads}}},
        {"a.v_proj.weight", {16, kHidden}, {}, {{Unit::KeyHeads, 0, kHeads}}},
        {"a.o_proj.weight", {kHidden, 32}, {}, {{Unit::QueryHeads, 1, kHeads}}},
        {"f.gate_proj.weight", {48, kHidden}, {}, {{Unit::Elements, 0}}},
        {"f.up_proj.weight", {48, kHidden}, {}, {{Unit::Elements, 0}}},
        {"f.down_proj.weight", {kHidden, 48}, {}, {{Unit::Elements, 1}}}};
    return unit;
  }
  tensor::ParameterSet parameters{{describe()}};
  nn::Attention attention{
      parameters, nn::testing::attention_form("a", 8, nn::testing::rotation_form(8)), 0};
  nn::FeedForward feed_forward{parameters, nn::testing::gated_form("f")};
  nn::ForwardContext context;
};

TEST(TensorRegion, MovesTheTextbooksBytesPerLayer) {
  static constexpr size_t kBytes = kTokens * kHidden * sizeof(float);
  comm::run_fake_ranks(2, [](const std::shared_ptr<Communicator>& world) {
    for (const bool sequence : {false, true}) {
      Counting tp(*world);
      Layer layer(tp, sequence);
      const TensorRegion region(tp, sequence);
      layer.context.region = &region;
      const int64_t rows = sequence ? kTokens / 2 : kTokens;
      const at::Tensor y = layer.forward(ops::leaf(at::ones({rows, kHidden})));
      const Counts forward = tp.take();
      ops::backward(y, at::ones_like(y));
      const Counts backward = tp.take();
      const std::vector<size_t> two(2, kBytes), four(4, kBytes);
      if (!sequence) {
        EXPECT_EQ(forward, (Counts{{"all_reduce", two}}));
        EXPECT_EQ(backward, (Counts{{"all_reduce", two}}));
      } else {
        EXPECT_EQ(forward, (Counts{{"all_gather", two}, {"reduce_scatter", two}}));
        // The backward gathers two gradients, and two inputs that were not kept.
        EXPECT_EQ(backward, (Counts{{"all_gather", four}, {"reduce_scatter", two}}));
      }
    }
  });
}

/// Returns what happens in the backward of attention and feed-forward, in order.
Events backward_events(Communicator& world, bool sequence, bool fused, bool immediate) {
  Counting tp(world);
  Layer layer(tp, sequence);
  const TensorRegion region(tp, sequence);
  layer.context.region = &region;
  layer.context.fused = fused;
  ops::WeightGradients& queue = *layer.context.weight_gradients;
  queue.set_immediate(immediate);
  queue.set_after_each([&] { tp.events.emplace_back("gradient"); });
  const at::Tensor y =
      layer.forward(ops::leaf(at::ones({sequence ? kTokens / 2 : kTokens, kHidden})));
  tp.events.clear();
  ops::backward(y, at::ones_like(y));
  tp.events.emplace_back("end");
  queue.drain();
  return tp.events;
}

TEST(TensorRegion, ComputesWeightGradientsWhileTheSumOfTheInputsGradientIsUnderWay) {
  comm::run_fake_ranks(2, [](const std::shared_ptr<Communicator>& world) {
    // The gradients are those of down, of gate and up, of o, and of q, k and v.
    const Events fused = {"gradient",   "all_reduce", "gradient", "order", "gradient",
                          "all_reduce", "gradient",   "order",    "end"};
    EXPECT_EQ(backward_events(*world, false, true, true), fused);
    const Events plain = {"gradient", "all_reduce", "gradient",   "gradient",
                          "order",    "gradient",   "all_reduce", "gradient",
                          "gradient", "gradient",   "order",      "end"};
    EXPECT_EQ(backward_events(*world, false, false, true), plain);
  });
}

TEST(TensorRegion, FetchesTheRowsOfAWeightGradientWhileTheInputsGradientIsComputed) {
  comm::run_fake_ranks(2, [](const std::shared_ptr<Communicator>& world) {
    Events expected;
    for (int layer = 0; layer < 2; ++layer) {
      // The second gather is that of the rows, which the sum follows.
      for (const char* event : {"all_gather", "order", "gradient", "all_gather",
                                "reduce_scatter", "order", "gradient", "order"}) {
        expected.emplace_back(event);
      }
    }
    expected.emplace_back("end");
    EXPECT_EQ(backward_events(*world, true, true, true), expected);
  });
}

TEST(TensorRegion, LeavesWeightGradientsToAScheduleThatDefersThem) {
  comm::run_fake_ranks(2, [](const std::shared_ptr<Communicator>& world) {
    const Events expected = {"all_gather", "order",    "reduce_scatter", "order",
                             "all_gather", "order",    "reduce_scatter", "order",
                             "end",        "gradient", "all_gather",     "order",
                             "gradient",   "gradient", "all_gather",     "order",
                             "gradient"};
    EXPECT_EQ(backward_events(*world, true, true, false), expected);
  });
}

/// A region whose layers compute their weight gradients at once.
class AtOnce final : public nn::SplitRegion {
 public:
  explicit AtOnce(const TensorRegion& inner) : inner_(inner) {}
  int64_t ranks() const override { return inner_.ranks(); }
  int64_t token_parts() const override { return inner_.token_parts(); }
  at::Tensor outside(const at::Tensor& x) const override { return inner_.outside(x); }
  ops::LinearInput enter(const at::Tensor& x) const override {
    const ops::LinearInput in = inner_.enter(x);
    return {in.x, in.again};
  }
  at::Tensor leave(const at::Tensor& x) const override { return inner_.leave(x); }
  void combine_loss(at::Tensor& lse, at::Tensor& picked) const override {
    inner_.combine_loss(lse, picked);
  }
  void sum_features(at::Tensor& sums) const override { inner_.sum_features(sums); }

 private:
  const TensorRegion& inner_;
};

TEST(TensorRegion, HasTheSameBitsAsWithWeightGradientsBeforeTheSum) {
  comm::run_fake_ranks(2, [](const std::shared_ptr<Communicator>& world) {
    for (const bool sequence : {false, true}) {
      const TensorRegion beside(*world, sequence);
      const AtOnce before(beside);
      std::vector<std::vector<at::Tensor>> results;
      for (const nn::SplitRegion* region :
           std::initializer_list<const nn::SplitRegion*>{&beside, &before}) {
        Layer layer(*world, sequence);
        layer.context.region = region;
        const int64_t rows = sequence ? kTokens / 2 : kTokens;
        const at::Tensor x =
            ops::leaf(at::arange(rows * kHidden, at::kFloat).sin().view({rows, kHidden}));
        const at::Tensor y = layer.forward(x);
        ops::backward(y, at::cos(y));
        std::vector<at::Tensor>& all = results.emplace_back(std::vector{x.grad()});
        for (const auto& p : layer.parameters.units().front().parameters) {
          all.push_back(p->grad());
        }
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_GT(results[0][i].abs().sum().item<double>(), 0.0);
        EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << i;
      }
    }
  });
}

TEST(TensorRegion, DoesNotKeepGatheredRowsForTheBackward) {
  comm::run_fake_ranks(2, [](const std::shared_ptr<Communicator>& world) {
    const auto weight = ops::bound(at::ones({5, 8}));
    const TensorRegion region(*world, true);
    const at::Tensor x = ops::leaf(at::full({3, 8}, world->rank() + 1.0));
    c10::weak_intrusive_ptr<c10::StorageImpl> storage(
        c10::intrusive_ptr<c10::StorageImpl>{});
    at::Tensor y;
    {
      const ops::LinearInput in = region.enter(x);
      storage = in.x.storage().getWeakStorageImpl();
      y = ops::linear(in, weight, std::make_shared<ops::WeightGradients>());
    }
    EXPECT_TRUE(storage.expired());
    ops::backward(y, at::ones_like(y));
    // A gradient of the weight sums all six gathered rows, three of ones and three of
    // twos.
    EXPECT_TRUE(weight->grad().eq(9.0).all().item<bool>());
    EXPECT_TRUE(x.grad().eq(2 * 5.0).all().item<bool>()) << "both ranks' gradients";
  });
}

TEST(TensorRegion, EnterAndLeaveAreEachOthersBackward) {
  comm::run_fake_ranks(3, [](const std::shared_ptr<Communicator>& world) {
    const auto r = static_cast<double>(world->rank());
    for (const bool sequence : {false, true}) {
      const TensorRegion region(*world, sequence);
      const int64_t rows = sequence ? 2 : 6;
      const at::Tensor x = ops::leaf(at::full({rows, 4}, r));
      const at::Tensor in = region.enter(x).x;
      ASSERT_EQ(in.size(0), 6);
      EXPECT_EQ(in[5][0].item<double>(), sequence ? 2.0 : r);
      ops::backward(in, at::full({6, 4}, r + 1.0));
      EXPECT_TRUE(x.grad().eq(6.0).all().item<bool>());
      const at::Tensor partial = ops::leaf(at::full({6, 4}, r + 1.0));
      const at::Tensor y = region.leave(partial * 1.0);
      ASSERT_EQ(y.size(0), rows);
      EXPECT_TRUE(y.eq(6.0).all().item<bool>());
      ops::backward(y, at::full({rows, 4}, r));
      EXPECT_EQ(partial.grad()[5][0].item<double>(), sequence ? 2.0 : r);
    }
  });
}

TEST(TensorRegion, LeavesTheGradientOfItsUserAsItIs) {
  comm::run_fake_ranks(2, [](const std::shared_ptr<Communicator>& world) {
    const TensorRegion region(*world, false);
    const at::Tensor x = ops::leaf(at::ones({2, 2})), dy = at::ones({2, 2});
    ops::backward(region.enter(x).x, dy);
    EXPECT_TRUE(dy.eq(1.0).all().item<bool>());
    EXPECT_TRUE(x.grad().eq(2.0).all().item<bool>());
  });
}

TEST(TensorRegion, RefusesTokensThatDoNotSplit) {
  const auto leave = [](const std::shared_ptr<Communicator>& world) {
    TensorRegion(*world, true).leave(at::ones({7, 4}));
  };
  try {
    comm::run_fake_ranks(2, leave);
    FAIL() << "accepted";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("7 tokens do not split over tp = 2 ranks"),
              std::string::npos)
        << error.what();
  }
}

TEST(TensorRegion, CombinesTheLossToTheSameBitsOnEveryRank) {
  at::manual_seed(5);
  const at::Tensor logits = at::randn({9, 30}) * 20.0;
  std::mutex mutex;
  std::vector<at::Tensor> results;
  comm::run_fake_ranks(3, [&](const std::shared_ptr<Communicator>& world) {
    const at::Tensor part = logits.narrow(1, 10 * world->rank(), 10);
    at::Tensor lse = at::logsumexp(part, {1});
    at::Tensor picked = world->rank() == 1 ? part.select(1, 4).clone() : at::zeros({9});
    TensorRegion(*world, true).combine_loss(lse, picked);
    const std::lock_guard lock(mutex);
    results.push_back(at::stack({lse, picked}));
  });
  ASSERT_EQ(results.size(), 3U);
  for (const at::Tensor& result : results) EXPECT_TRUE(at::equal(result, results[0]));
  ops::expect_close(results[0][0], at::logsumexp(logits, {1}), 1e-6, "lse");
  EXPECT_TRUE(at::equal(results[0][1], logits.select(1, 14)));
}

}  // namespace
}  // namespace longhaul::parallel
