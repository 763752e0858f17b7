// Tests what the ranks of ep send each other, and that it arrives bit for bit.
#include <ATen/ATen.h>
#include <c10/core/StorageImpl.h>

#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "longhaul/comm/over_host.h"
#include "longhaul/parallel/expert/dispatch.h"
#include "tests/dist/counted_memory.h"
#include "tests/support/experts_layer.h"
#include "tests/support/fake_ranks.h"

namespace longhaul::parallel {
namespace {

using namespace longhaul::testing::experts;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
using testing::CountedMemory;

/// Checks what is in memory once rows have been sent.
class WatchedDispatch : public nn::ExpertDispatch {
 public:
  explicit WatchedDispatch(const TokenDispatch& inner) : inner_(inner) {}

  CountsPtr announce(const at::Tensor& chosen, int64_t experts) const override {
    return inner_.announce(chosen, experts);
  }
  WayPtr send(const CountsPtr& counts, const at::Tensor& x, const at::Tensor& weights,
              const ops::RoutedRows& rows, bool fused) const override {
    before_ = CountedMemory::live();
    return inner_.send(counts, x, weights, rows, fused);
  }
  Arrived arrive(const WayPtr& way) const override {
    Arrived in = inner_.arrive(way);
    const int64_t rows = in.rows.size(0);
    // The rows, their weights, the first row of each expert, and two numbers that say
    // where each row came from. The table of counts is no longer there.
    const int64_t kept = rows * (kHidden * 4 + 4 + 2 * 8) + (kExperts / 2 + 1) * 4;
    EXPECT_EQ(CountedMemory::live() - before_, kept - 2 * kExperts * 8);
    return in;
  }
  at::Tensor back(const WayPtr& way, at::Tensor rows) const override {
    const WeakStorage results = rows.storage().getWeakStorageImpl();
    at::Tensor y = inner_.back(way, std::move(rows));
    EXPECT_TRUE(results.expired()) << "the results of experts";
    return y;
  }

 private:
  const TokenDispatch& inner_;
  mutable int64_t before_ = 0;
};

TEST(ExpertParallel, KeepsNoRowsThatHaveBeenSent) {
  CountedMemory::install();
  const at::Tensor x = random(1), dy = random(2);
  comm::run_fake_ranks(2, [&](const std::shared_ptr<comm::Communicator>& world) {
    Layer layer(/*shared=*/false, 2, world->rank());
    const TokenDispatch dispatch(*world, nullptr);
    const WatchedDispatch watched(dispatch);
    layer.context.router.dispatch = &watched;
    const auto part = [&](const at::Tensor& of) {
      return of.narrow(0, world->rank() * kTokens / 2, kTokens / 2);
    };
    layer.run(part(x), part(dy));
    const at::NoGradGuard no_grad;
    layer.experts.forward(part(x), layer.context);
  });
}

/// Notes the exchanges of a group that is owned elsewhere.
class NotedGroup : public comm::OverHost {
 public:
  explicit NotedGroup(comm::Communicator& group) : OverHost(comm::borrowed(group)) {}

  comm::WorkPtr start(comm::Request request) override {
    ++calls[request.verb];
    for (const comm::Transfer& t : request.transfers) {
      ++messages[{t.kind == comm::Transfer::Kind::Send, t.peer}];
    }
    return host().start(std::move(request));
  }
  std::unique_ptr<comm::Communicator> split(int color, int key,
                                            std::string name) override {
    return host().split(color, key, std::move(name));
  }

  std::map<comm::Verb, int> calls;
  std::map<std::pair<bool, int>, int> messages;  ///< by direction and rank
};

TEST(ExpertParallel, SendsOneMessageToEachRankInEachDirection) {
  constexpr int kRanks = 4;
  const at::Tensor x = random(1), dy = random(2);
  comm::run_fake_ranks(kRanks, [&](const std::shared_ptr<comm::Communicator>& world) {
    Layer layer(/*shared=*/true, kRanks, world->rank());
    NotedGroup noted(*world);
    const TokenDispatch dispatch(noted, nullptr);
    layer.context.router.dispatch = &dispatch;
    const auto part = [&](const at::Tensor& of) {
      return of.narrow(0, world->rank() * kTokens / kRanks, kTokens / kRanks);
    };
    layer.run(part(x), part(dy));
    // Rows go there and back, in the forward and in the backward.
    EXPECT_EQ(noted.calls[comm::Verb::SendRecv], 4);
    EXPECT_EQ(noted.calls[comm::Verb::AllToAll], 1);
    EXPECT_EQ(noted.messages.size(), 2 * (kRanks - 1));
    for (const auto& [way, count] : noted.messages) {
      EXPECT_EQ(count, 4) << "rank " << way.second;
    }
  });
}

/// Runs a layer twice with one choice, as recomputation does.
TEST(ExpertParallel, ExchangesNoCountsWhenALayerRunsAgain) {
  const at::Tensor x = random(1);
  comm::run_fake_ranks(2, [&](const std::shared_ptr<comm::Communicator>& world) {
    Layer layer(/*shared=*/false, 2, world->rank());
    NotedGroup noted(*world);
    const TokenDispatch dispatch(noted, nullptr);
    layer.context.router.dispatch = &dispatch;
    layer.context.router.pass = std::make_shared<nn::RouterPass>();
    const at::NoGradGuard no_grad;
    const at::Tensor mine = x.narrow(0, world->rank() * kTokens / 2, kTokens / 2);
    const at::Tensor first = layer.experts.forward(mine, layer.context);
    EXPECT_TRUE(at::equal(layer.experts.forward(mine, layer.context), first));
    EXPECT_EQ(noted.calls[comm::Verb::AllToAll], 1);
    EXPECT_EQ(noted.calls[comm::Verb::SendRecv], 4);
  });
}

/// Sends rows of an odd number of features. The bits of weights that are no numbers, and
/// of others, arrive as they were.
TEST(ExpertParallel, BringsRowsAndWeightsToTheirExpertsBitForBit) {
  constexpr int kRanks = 3;
  constexpr int64_t kOf = 6, kEach = 5, kTwo = 2, kFeatures = 7;
  struct Tokens {
    at::Tensor x, weights, chosen;
    ops::RoutedRows rows;
  };
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    std::vector<Tokens> all;
    for (int r = 0; r < kRanks; ++r) {
      at::manual_seed(static_cast<uint64_t>(r));
      Tokens made;
      made.x = at::randn({kEach, kFeatures}).to(type);
      const at::Tensor bits = at::randint(INT32_MIN, INT32_MAX, {kEach * kTwo}, at::kInt);
      made.weights = bits.view(at::kFloat);
      made.weights[0].fill_(std::numeric_limits<float>::quiet_NaN());
      made.weights[1].fill_(-0.0F);
      // No token of rank 1 goes to the experts of rank 2.
      const at::Tensor scores = at::rand({kEach, r == 1 ? 4 : kOf});
      made.chosen = std::get<0>(at::sort(std::get<1>(at::topk(scores, kTwo, -1)), -1));
      made.rows = ops::route(made.chosen, kOf);
      all.push_back(made);
    }
    comm::run_fake_ranks(kRanks, [&](const std::shared_ptr<comm::Communicator>& world) {
      const at::NoGradGuard no_grad;
      const TokenDispatch dispatch(*world, nullptr);
      const Tokens& mine = all[static_cast<size_t>(world->rank())];
      const auto counts = dispatch.announce(mine.chosen, kOf);
      const auto way = dispatch.send(counts, mine.x, mine.weights, mine.rows, true);
      const auto got = dispatch.arrive(way);
      std::vector<at::Tensor> rows, weights, offsets = {at::zeros({1}, at::kInt)};
      int64_t row = 0;
      for (int64_t e = world->rank() * 2; e < world->rank() * 2 + 2; ++e) {
        for (const Tokens& from : all) {
          const auto* first = from.rows.offsets.const_data_ptr<int32_t>() + e;
          const int64_t count = first[1] - first[0];
          rows.push_back(
              from.x.index_select(0, from.rows.token.narrow(0, first[0], count)));
          weights.push_back(from.weights.narrow(0, first[0], count));
          row += count;
        }
        offsets.push_back(at::full({1}, row, at::kInt));
      }
      EXPECT_TRUE(at::equal(got.rows, at::cat(rows)));
      EXPECT_TRUE(at::equal(got.weights.view(at::kInt), at::cat(weights).view(at::kInt)));
      EXPECT_TRUE(at::equal(got.offsets, at::cat(offsets)));
      EXPECT_TRUE(at::equal(dispatch.back(way, got.rows),
                            mine.x.index_select(0, mine.rows.token)));
    });
  }
}

}  // namespace
}  // namespace longhaul::parallel
