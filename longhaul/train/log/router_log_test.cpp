#include "longhaul/train/log/router_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace longhaul::train {
namespace {

using Counts = std::vector<int64_t>;

/// Returns the loads of one layer with experts behind one without.
session::ExpertLoads second_layer(Counts counts) {
  session::ExpertLoads loads;
  loads.counts = {{}, std::move(counts)};
  loads.entropy = {0.0, 1.25};
  return loads;
}

const Counts kEven = {100, 100, 100, 100};
const Counts kOneExpert = {4, 392, 4, 0};  // 1.12 of 4 in effective use

/// Returns the layers that the rule tells of at a step.
std::vector<int64_t> told(CollapseRule& rule, const Counts& counts, int64_t step) {
  std::vector<int64_t> layers;
  for (const auto& event : rule.look(second_layer(counts), step)) {
    layers.push_back(event.layer);
  }
  return layers;
}

TEST(SharesOfExperts, AddUpToTheExpertsOfATokenWhateverTheBatch) {
  using Shares = std::vector<double>;
  EXPECT_EQ(session::shares_of({300, 100, 0, 0}, 2), (Shares{1.5, 0.5, 0.0, 0.0}));
  EXPECT_EQ(session::shares_of({600, 200, 0, 0}, 2),
            session::shares_of({300, 100, 0, 0}, 2));
  EXPECT_EQ(session::shares_of({0, 0, 0, 0}, 2), (Shares{0.5, 0.5, 0.5, 0.5}));
  EXPECT_EQ(session::shares_of({}, 2), Shares{});
}

TEST(LongestCounts, HaveEachLayersExperts) {
  families::Experts experts;
  experts.experts.resize(3);
  const auto block = [](families::Core core) {
    return families::Block{families::Step{.branches = {{.core = std::move(core)}}}};
  };
  families::Network network;
  network.blocks = {block(families::FeedForward{}), block(experts)};
  EXPECT_EQ(session::longest_counts(network, 4096),
            (std::vector<Counts>{{}, {4096, 4096, 4096}}));
  network.blocks.pop_back();
  EXPECT_TRUE(session::longest_counts(network, 4096).empty());
}

TEST(RouterFigures, AreTheWorstOfTheLayersAndTheMeanEntropy) {
  session::ExpertLoads loads;
  loads.counts = {kEven, {}, {200, 200, 0, 0}};
  loads.entropy = {1.0, 0.0, 0.5};
  run::StepRecord record;
  set_figures(loads, record);
  EXPECT_DOUBLE_EQ(record.expert_use, 0.5);
  EXPECT_DOUBLE_EQ(record.expert_busiest, 2.0);
  EXPECT_DOUBLE_EQ(record.router_entropy, 0.75);
}

TEST(RouterFigures, OfAModelWithoutExpertsAreNone) {
  run::StepRecord record;
  set_figures({}, record);
  EXPECT_TRUE(std::isnan(record.expert_use));
  EXPECT_TRUE(std::isnan(record.expert_busiest));
  EXPECT_TRUE(std::isnan(record.router_entropy));
  EXPECT_FALSE(run::to_json(record, {}).contains("router_entropy"));
}

TEST(ExpertLoadsEvent, HasTheLayersWithExpertsAndShortNumbers) {
  EXPECT_EQ(run::event_fields(expert_loads(second_layer({300, 100, 0, 0}), 7)).dump(),
            R"({"layers":[{"counts":[300,100,0,0],"effective":1.7548,"entropy":1.25,)"
            R"("layer":1}],"step":7})");
}

TEST(CollapseRule, TellsOfALayerOnceAndAgainAfterItHasRecovered) {
  CollapseRule rule(0.4);
  EXPECT_EQ(told(rule, kEven, 1), (Counts{}));
  EXPECT_EQ(told(rule, kOneExpert, 2), (Counts{1}));
  EXPECT_EQ(told(rule, kOneExpert, 3), (Counts{}));
  // 1.65 of 4 is above 0.4, but not by a tenth: the layer may not warn again.
  EXPECT_EQ(told(rule, {320, 80, 0, 0}, 4), (Counts{}));
  EXPECT_EQ(told(rule, kOneExpert, 5), (Counts{}));
  EXPECT_EQ(told(rule, kEven, 6), (Counts{}));
  EXPECT_EQ(told(rule, kOneExpert, 7), (Counts{1}));
}

TEST(CollapseRule, SaysWhatTheLayerUsesAndWhichExpertIsBusiest) {
  CollapseRule rule(0.4);
  const auto found = rule.look(second_layer(kOneExpert), 2);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(run::event_fields(found[0]).dump(),
            R"({"busiest":3.92,"busiest_expert":1,"effective":1.1184,"experts":4,)"
            R"("layer":1,"step":2})");
}

TEST(CollapseRule, FewChoicesSayNothing) {
  CollapseRule rule(0.4);
  EXPECT_EQ(told(rule, {31, 0, 0, 0}, 1), (Counts{}));
  EXPECT_EQ(told(rule, {32, 0, 0, 0}, 2), (Counts{1}));
  // Steps with few choices do not make a layer recover, either.
  EXPECT_EQ(told(rule, {1, 1, 1, 1}, 3), (Counts{}));
  EXPECT_EQ(told(rule, {32, 0, 0, 0}, 4), (Counts{}));
}

TEST(CollapseRule, WithZeroNeverWarns) {
  CollapseRule rule(0.0);
  EXPECT_EQ(told(rule, {400, 0, 0, 0}, 1), (Counts{}));
}

}  // namespace
}  // namespace longhaul::train
