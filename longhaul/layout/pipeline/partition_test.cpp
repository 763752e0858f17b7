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
  for (size_t s = 0; s < counts.size(); ++s) {
    double cost = static_cast<double>(counts[s]) * costs.layer;
    if (s == 0) cost += costs.embedding;
    if (s + 1 == counts.size()) cost += costs.head;
    result = std::max(result, cost);
  }
  return result;
}

/// Returns the smallest possible largest cost, found by trying every cut.
double best_possible(int64_t layers, int64_t stages, const LayerCosts& costs) {
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
  fill(layers);
  return best;
}

TEST(Partition, EqualCostsGiveEqualStages) {
  EXPECT_EQ(sizes(partition_layers(80, 8, LayerCosts{})), Sizes(8, 10));
  EXPECT_EQ(sizes(partition_layers(7, 1, LayerCosts{})), Sizes{7});
  EXPECT_EQ(sizes(partition_layers(4, 4, LayerCosts{})), Sizes(4, 1));
}

TEST(Partition, LayersNeedNotDivideAndEarlierStagesGetFewer) {
  EXPECT_EQ(sizes(partition_layers(10, 4, LayerCosts{1.0, 1.0, 1.0})),
            (Sizes{2, 3, 3, 2}));
  EXPECT_EQ(sizes(partition_layers(13, 5, LayerCosts{1.0, 1.0, 1.0})),
            (Sizes{2, 3, 3, 3, 2}));
  EXPECT_EQ(sizes(partition_layers(9, 4, LayerCosts{1.0, 1.0, 1.0})),
            (Sizes{1, 3, 3, 2}));
}

TEST(Partition, AHeavyHeadTakesLayersOffTheLastStage) {
  // A model of 32 layers whose head costs as much as four layers.
  EXPECT_EQ(sizes(partition_layers(32, 4, LayerCosts{1.0, 0.0, 4.0})),
            (Sizes{9, 9, 9, 5}));
  EXPECT_EQ(sizes(partition_layers(4, 2, LayerCosts{1.0, 0.0, 100.0})), (Sizes{3, 1}));
}

TEST(Partition, NoOtherCutHasACheaperLargestStage) {
  for (int64_t layers = 1; layers <= 12; ++layers) {
    for (int64_t stages = 1; stages <= std::min<int64_t>(layers, 6); ++stages) {
      for (const LayerCosts& costs :
           {LayerCosts{1, 0, 0}, {1, 0.3, 2.5}, {2, 5, 1}, {0.1, 0.3, 0.7}, {1, 3, 3}}) {
        const Sizes found = sizes(partition_layers(layers, stages, costs));
        EXPECT_NEAR(largest(found, costs), best_possible(layers, stages, costs), 1e-9)
            << layers << " layers, " << stages << " stages";
      }
    }
  }
}

TEST(Partition, TakesTheCountsOfAPerson) {
  const Sizes counts{1, 4, 2};
  EXPECT_EQ(sizes(partition_layers(7, 3, counts)), counts);
}

void expect_config_error(const std::function<void()>& body, const std::string& part) {
  try {
    body();
    ADD_FAILURE() << "no error; expected: " << part;
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Partition, RefusesWhatCannotBe) {
  expect_config_error([] { partition_layers(6, 8, LayerCosts{}); },
                      "6 layers cannot fill 8 stages (parallel.pp x virtual_stages): "
                      "every stage holds at least one layer; use at most 6 stages");
  const auto counts = [](int64_t layers, int64_t stages, const Sizes& given) {
    return [=] { partition_layers(layers, stages, given); };
  };
  expect_config_error(counts(7, 3, {3, 4}), "2 layer counts for 3 stages");
  expect_config_error(counts(7, 3, {1, 4, 3}), "add up to 8, but the model has 7 layers");
  expect_config_error(counts(7, 3, {0, 4, 3}), "a stage of 0 layers");
  expect_config_error(counts(7, 3, {-1, 4, 4}), "a stage of -1 layers");
}

}  // namespace
}  // namespace longhaul::layout
