#include "longhaul/layout/pipeline/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "longhaul/base/error.h"

namespace longhaul::layout {
namespace {

std::vector<int64_t> sizes(const std::vector<StageLayers>& stages) {
  std::vector<int64_t> out;
  int64_t next = 0;
  for (const StageLayers& stage : stages) {
    EXPECT_EQ(stage.first_layer, next);
    next = stage.end_layer;
    out.push_back(stage.size());
  }
  return out;
}

using Sizes = std::vector<int64_t>;

double largest(const Sizes& counts, const LayerCosts& costs) {
  double result = 0.0;
  size_t next = 0;
  for (size_t s = 0; s < counts.size(); ++s) {
    double cost = 0.0;
    for (int64_t i = 0; i < counts[s]; ++i) cost += costs.layers.at(next++);
    if (s == 0) cost += costs.embedding;
    if (s + 1 == counts.size()) cost += costs.head;
    result = std::max(result, cost);
  }
  return result;
}

/// Returns the smallest possible largest cost, found by trying every cut.
double best_possible(int64_t stages, const LayerCosts& costs) {
  double best = std::numeric_limits<double>::infinity();
  Sizes counts;
  const std::function<void(int64_t)> fill = [&](int64_t left) {
    if (static_cast<int64_t>(counts.size()) + 1 == stages) {
      counts.push_back(left);
      best = std::min(best, largest(counts, costs));
      counts.pop_back();
      return;
    }
    const int64_t still = stages - static_cast<int64_t>(counts.size()) - 1;
    for (int64_t take = 1; take <= left - still; ++take) {
      counts.push_back(take);
      fill(left - take);
      counts.pop_back();
    }
  };
  fill(std::ssize(costs.layers));
  return best;
}

/// Returns the costs of layers that cost 1 each.
LayerCosts alike(int64_t layers, double embedding = 0.0, double head = 0.0) {
  return {std::vector<double>(static_cast<size_t>(layers), 1.0), embedding, head};
}

TEST(Partition, EqualCostsGiveEqualStages) {
  EXPECT_EQ(sizes(partition_layers(alike(80), 8)), Sizes(8, 10));
  EXPECT_EQ(sizes(partition_layers(alike(7), 1)), Sizes{7});
  EXPECT_EQ(sizes(partition_layers(alike(4), 4)), Sizes(4, 1));
}

TEST(Partition, LayersNeedNotDivideAndEarlierStagesGetFewer) {
  EXPECT_EQ(sizes(partition_layers(alike(10, 1.0, 1.0), 4)), (Sizes{2, 3, 3, 2}));
  EXPECT_EQ(sizes(partition_layers(alike(13, 1.0, 1.0), 5)), (Sizes{2, 3, 3, 3, 2}));
  EXPECT_EQ(sizes(partition_layers(alike(9, 1.0, 1.0), 4)), (Sizes{1, 3, 3, 2}));
}

TEST(Partition, AHeavyHeadTakesLayersOffTheLastStage) {
  // A model of 32 layers whose head costs as much as four layers.
  EXPECT_EQ(sizes(partition_layers(alike(32, 0.0, 4.0), 4)), (Sizes{9, 9, 9, 5}));
  EXPECT_EQ(sizes(partition_layers(alike(4, 0.0, 100.0), 2)), (Sizes{3, 1}));
}

TEST(Partition, LayersWithDifferentCostsAreBalanced) {
  EXPECT_EQ(sizes(partition_layers({{4, 1, 1, 1, 1}}, 2)), (Sizes{1, 4}));
  EXPECT_EQ(sizes(partition_layers({{1, 1, 3, 1, 1, 3}}, 2)), (Sizes{3, 3}));
  EXPECT_EQ(sizes(partition_layers({{1, 1, 1, 1, 6, 1}, 0, 3}, 3)), (Sizes{4, 1, 1}));
}

TEST(Partition, NoOtherCutHasACheaperLargestStage) {
  for (int64_t layers = 1; layers <= 12; ++layers) {
    for (int64_t stages = 1; stages <= std::min<int64_t>(layers, 6); ++stages) {
      for (const double slope : {0.0, 0.25, 1.5}) {
        for (const auto& [embedding, head] :
             {std::pair{0.0, 0.0}, {0.3, 2.5}, {5.0, 1.0}, {3.0, 3.0}}) {
          LayerCosts costs{{}, embedding, head};
          for (int64_t i = 0; i < layers; ++i) {
            costs.layers.push_back(1.0 + slope * static_cast<double>(i * 5 % 7));
          }
          const Sizes found = sizes(partition_layers(costs, stages));
          EXPECT_NEAR(largest(found, costs), best_possible(stages, costs), 1e-9)
              << layers << " layers, " << stages << " stages";
        }
      }
    }
  }
}

TEST(Partition, TakesTheCountsOfAPerson) {
  const Sizes counts{1, 4, 2};
  EXPECT_EQ(sizes(partition_layers(counts)), counts);
}

TEST(Partition, TakesNoMoreStagesThanLayers) {
  EXPECT_THROW(partition_layers(alike(6), 8), Error);
  EXPECT_THROW(partition_layers({{1, 0, 1}}, 2), Error);
}

}  // namespace
}  // namespace longhaul::layout
