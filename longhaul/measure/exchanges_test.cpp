#include "longhaul/measure/exchanges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/process.h"
#include "longhaul/families/model_config.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/settings.h"

namespace longhaul::measure {
namespace {

using layout::GroupKind;
using layout::TrafficKind;
using layout::TrafficLine;
using layout::Verb;

std::vector<std::string> names_of(const std::vector<std::string>& sets, int64_t ranks,
                                  const std::string& model_name = "llama3-70b") {
  const RunConfig config = accepted("", sets).config;
  const ModelDescription model =
      load_model_config(source_dir() / "tests/fixtures/configs" / (model_name + ".json"))
          .description;
  const layout::LayoutDescription layout =
      layout::describe_layout(config, model, ranks, layout::Placement::even(8));
  const layout::LayoutCosts costs(config, model, layout);
  std::vector<std::string> names;
  for (const TrafficLine& line : exchanges_of(layout, costs)) {
    names.push_back(std::string(layout::group_name(line.group)) + " " +
                    std::string(layout::operation_name(line)));
  }
  return names;
}

TEST(Exchanges, AreThoseOfTheRunsGroups) {
  EXPECT_TRUE(names_of({}, 1).empty());
  EXPECT_EQ(names_of({"parallel.zero=0"}, 2),
            (std::vector<std::string>{"dp all_reduce"}));
  const std::vector<std::string> all =
      names_of({"parallel.tp=2", "parallel.pp=2", "parallel.zero=1"}, 8);
  for (const char* name : {"pp send_recv", "tp all_gather", "tp reduce_scatter",
                           "dp reduce_scatter", "dp all_gather"}) {
    EXPECT_EQ(std::ranges::count(all, name), 1) << name;
  }
  const std::vector<std::string> experts =
      names_of({"parallel.pp=2", "parallel.ep=4"}, 8, "mixtral-8x7b");
  for (const char* name : {"pp send_recv", "ep all_to_all", "ep expert rows"}) {
    EXPECT_EQ(std::ranges::count(experts, name), 1) << name;
  }
}

/// Runs every probe of an operation on a group of three ranks, and returns the bytes that
/// rank 0 sends at each size.
std::vector<double> sent_by_rank_0(TrafficKind kind, Verb verb) {
  std::vector<double> sent;
  comm::run_fake_ranks(3, [&](const std::shared_ptr<comm::Communicator>& world) {
    std::vector<float> in(kExchangeBytes.back() / 4), out(in.size());
    for (const Probe& probe :
         exchange_probes({kind, GroupKind::Tp, verb}, *world, format::DType::F32,
                         in.data(), out.data())) {
      const int64_t before = world->counts().total().bytes;
      probe.run();
      EXPECT_EQ(static_cast<double>(world->counts().total().bytes - before), probe.work);
      EXPECT_GT(probe.runs, 0);
      if (world->rank() == 0) sent.push_back(probe.work);
    }
  });
  return sent;
}

TEST(ExchangeProbes, SendWhatTheOperationsOfATrainingSend) {
  std::vector<double> wholes, parts;
  for (const int64_t bytes : kExchangeBytes) {
    const int64_t part = bytes / 4 / 3 * 4;
    wholes.push_back(static_cast<double>(3 * part));
    parts.push_back(static_cast<double>(2 * part));
  }
  EXPECT_EQ(sent_by_rank_0(TrafficKind::Weights, Verb::AllGather), parts);
  EXPECT_EQ(sent_by_rank_0(TrafficKind::Gradients, Verb::ReduceScatter), parts);
  EXPECT_EQ(sent_by_rank_0(TrafficKind::Experts, Verb::AllToAll), parts);
  EXPECT_EQ(sent_by_rank_0(TrafficKind::Experts, Verb::SendRecv), parts);
  EXPECT_EQ(sent_by_rank_0(TrafficKind::Pipeline, Verb::SendRecv), wholes);
  EXPECT_EQ(sent_by_rank_0(TrafficKind::Context, Verb::SendRecv), wholes);
  for (const Verb verb : {Verb::AllReduce, Verb::Broadcast}) {
    const std::vector<double> sent = sent_by_rank_0(TrafficKind::Gradients, verb);
    ASSERT_EQ(sent.size(), wholes.size());
    EXPECT_GE(sent.back(), wholes.back());
  }
}

TEST(ExchangeProbes, OfARankThatIsAloneDoNothing) {
  const layout::Groups groups({.pp = 1, .dp = 2, .cp = 1, .tp = 2}, 1, false, 0);
  comm::run_fake_ranks(4, [&](const std::shared_ptr<comm::Communicator>& world) {
    const auto tp = group_of(*world, groups, GroupKind::Tp);
    EXPECT_EQ(tp->size(), 2);
    EXPECT_EQ(tp->rank(), world->rank() % 2);
    EXPECT_EQ(tp->name(), "tp");
    const auto alone = group_of(*world, groups, GroupKind::Cp);
    EXPECT_EQ(alone->size(), 1);
    for (const Probe& probe :
         exchange_probes({TrafficKind::Context, GroupKind::Cp, Verb::SendRecv}, *alone,
                         format::DType::F32, nullptr, nullptr)) {
      probe.run();
      EXPECT_EQ(probe.work, 0.0);
    }
  });
}

SentBytes point(double bytes, double latency, double rate) {
  return {bytes, bytes / (latency + bytes / rate)};
}

TEST(FitLink, FindsLatencyAndRateOfWhatFollowsThem) {
  const std::vector<SentBytes> points = {point(6e4, 2e-5, 3e9), point(2e6, 2e-5, 3e9),
                                         point(3e7, 2e-5, 3e9)};
  const LinkProfile link = fit_link(points);
  EXPECT_NEAR(link.bytes_per_s / 3e9, 1.0, 1e-6);
  EXPECT_NEAR(link.latency_s / 2e-5, 1.0, 1e-6);
}

TEST(FitLink, MissesSmallAndLargeMessagesByEqualShares) {
  // The large messages are slower than the small ones predict.
  const std::vector<SentBytes> points = {point(6e4, 1e-5, 3e9), point(2e6, 1e-5, 3e9),
                                         point(3e7, 1e-5, 2e9)};
  const LinkProfile link = fit_link(points);
  for (const SentBytes& one : points) {
    const double seconds = link.latency_s + one.bytes / link.bytes_per_s;
    EXPECT_NEAR(seconds / (one.bytes / one.bytes_per_s), 1.0, 0.25) << one.bytes;
  }
}

TEST(FitLink, IsTheRateOfTheLargestMessageWhereNoLatencyIsLeft) {
  // Small messages are faster for each byte, as from a cache; then they take longer.
  const std::vector<SentBytes> cached = {{6e4, 9e9}, {2e6, 6e9}, {3e7, 3e9}};
  const std::vector<SentBytes> flat = {{6e4, 6e8}, {2e6, 4e10}, {3e7, 9e11}};
  for (const auto& points : {cached, flat}) {
    const LinkProfile link = fit_link(points);
    EXPECT_EQ(link.latency_s, 0.0);
    EXPECT_EQ(link.bytes_per_s, points.back().bytes_per_s);
  }
}

}  // namespace
}  // namespace longhaul::measure
