#include "longhaul/layout/unit_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace longhaul::layout {
namespace {

using Kind = PipelineAction::Kind;

PipelinePlan one_stage(int64_t micro_batches) {
  return make_pipeline_plan(PipelineKind::OneFOneB, 1, 1, micro_batches);
}

/// Returns one chunk with an embedding, `blocks` blocks and a head.
RankUnits units_of(int blocks, int64_t block_bytes, int64_t table_bytes, int64_t budget) {
  RankUnits units;
  units.chunks = {{{0, blocks, true, true}, 0, 1, blocks + 1}};
  units.gathered_bytes.assign(static_cast<size_t>(blocks) + 2, block_bytes);
  units.gathered_bytes.front() = units.gathered_bytes.back() = table_bytes;
  units.reduce_each = true;
  units.slots = gather_slots(one_stage(2), 0, units, budget);
  return units;
}

std::string text_of(const UnitPlan& plan) {
  std::string text;
  for (const WeightUse& use : plan.weights) {
    for (const int unit : use.gather) text += "+" + std::to_string(unit) + " ";
    text += (use.kind == Kind::Forward ? "f" : "b") + std::to_string(use.unit) + " ";
    for (const int unit : use.release) text += "-" + std::to_string(unit) + " ";
  }
  return text;
}

std::string gradients_of(const UnitPlan& plan) {
  std::string text;
  for (const GradientUse& formed : plan.gradients) {
    text += std::to_string(formed.unit);
    text += formed.last ? "! " : formed.reduce ? "+ " : " ";
  }
  return text;
}

TEST(UnitPlan, GathersOneUseAheadAndKeepsNoMoreThanTwoUnits) {
  const RankUnits units = units_of(3, 10, 10, 20);
  EXPECT_EQ(text_of(plan_units(one_stage(1), 0, units)),
            "+0 +1 f0 -0 +2 f1 -1 +3 f2 -2 +4 f3 f4 -4 +2 b3 -3 +1 b2 -2 b1 -1 ");
}

/// Adds layers to the head, whose matrix is in the same unit or in a tied embedding.
TEST(UnitPlan, LayersOfAHeadAreUsedAgainAndFormedBeforeTheBlocks) {
  RankUnits units = units_of(2, 0, 0, 0);
  units.chunks[0].head_layers = 3;
  const UnitPlan own = plan_units(one_stage(1), 0, units);
  EXPECT_EQ(text_of(own), "f0 f1 f2 f3 f3 b3 b2 b1 ");
  EXPECT_EQ(gradients_of(own), "3! 2! 1! 0! ");
  units.chunks[0].head = 0;
  const UnitPlan tied = plan_units(one_stage(1), 0, units);
  EXPECT_EQ(text_of(tied), "f0 f1 f2 f3 f0 b3 b2 b1 ");
  EXPECT_EQ(gradients_of(tied), "3! 2! 1! 0! ");
  units.delayed = true;
  EXPECT_EQ(gradients_of(plan_units(
                make_pipeline_plan(PipelineKind::ZeroBubbleH1, 1, 1, 1), 0, units)),
            "0! 3! 2! 1! ");
}

TEST(UnitPlan, ABudgetForAllGathersEachUnitOnceAStep) {
  const RankUnits units = units_of(3, 10, 30, 1000);
  std::map<int, int> gathers;
  for (const WeightUse& use : plan_units(one_stage(4), 0, units).weights) {
    for (const int unit : use.gather) ++gathers[unit];
  }
  EXPECT_EQ(gathers, (std::map<int, int>{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}}));
}

TEST(UnitPlan, HoldsEachUsedUnitWithinTheBudgetAndNothingAtTheEnd) {
  for (const int64_t budget : {50, 55, 60, 75, 90}) {
    for (const PipelineKind kind :
         {PipelineKind::GPipe, PipelineKind::OneFOneB, PipelineKind::ZeroBubbleH1}) {
      RankUnits units = units_of(5, 10, 30, budget);
      units.delayed = kind == PipelineKind::ZeroBubbleH1;
      const PipelinePlan plan = make_pipeline_plan(kind, 2, 1, 4);
      std::set<int> held;
      int64_t bytes = 0;
      for (const WeightUse& use : plan_units(plan, 0, units).weights) {
        for (const int unit : use.gather) {
          EXPECT_TRUE(held.insert(unit).second) << unit << " is gathered twice";
          bytes += units.gathered_bytes[static_cast<size_t>(unit)];
        }
        EXPECT_TRUE(held.contains(use.unit)) << use.unit << " is used and not here";
        EXPECT_LE(bytes, budget);
        for (const int unit : use.release) {
          EXPECT_EQ(held.erase(unit), 1U) << unit << " is released and not here";
          bytes -= units.gathered_bytes[static_cast<size_t>(unit)];
        }
      }
      EXPECT_TRUE(held.empty());
    }
  }
}

TEST(UnitPlan, ALargerBudgetNeverGathersMore) {
  size_t before = 1000;
  for (int64_t budget = 50; budget <= 120; budget += 10) {
    size_t gathers = 0;
    for (const WeightUse& use :
         plan_units(one_stage(6), 0, units_of(5, 10, 30, budget)).weights) {
      gathers += use.gather.size();
    }
    EXPECT_LE(gathers, before) << budget;
    before = gathers;
  }
  EXPECT_EQ(before, 7U);
}

TEST(UnitPlan, TablesThatFollowEachOtherAreNotGatheredAhead) {
  // Only forwards: after the head of one micro batch comes the embedding of the next.
  const RankUnits units = units_of(1, 10, 30, 40);
  EXPECT_EQ(text_of(plan_units(inference_plan(1, 1, 2), 0, units)),
            "+0 +1 f0 -0 +2 f1 f2 -2 +0 f0 -0 +2 f1 -1 f2 -2 ");
}

TEST(UnitPlan, WhatStaysIsNotGathered) {
  RankUnits units = units_of(2, 0, 0, 0);
  units.reduce_each = false;
  const UnitPlan plan = plan_units(one_stage(2), 0, units);
  EXPECT_EQ(text_of(plan), "f0 f1 f2 f3 b2 b1 f0 f1 f2 f3 b2 b1 ");
  // Gradients that stay are reduced after the last micro batch.
  EXPECT_EQ(gradients_of(plan), "3 2 1 0 3! 2! 1! 0! ");
}

TEST(UnitPlan, GradientsOfAUnitAreReducedInAscendingMicroBatchesUnderEverySchedule) {
  RankUnits units = units_of(2, 10, 10, 20);
  EXPECT_EQ(gradients_of(plan_units(one_stage(2), 0, units)), "3+ 2+ 1+ 0+ 3! 2! 1! 0! ");
  units.delayed = true;
  // Stage 1 of a pipeline, whose weight gradients come one backward late.
  const PipelinePlan late = make_pipeline_plan(PipelineKind::ZeroBubbleH1, 2, 1, 2);
  units.chunks = {{{2, 4, false, true}, -1, 0, 2}};
  units.gathered_bytes = {10, 10, 10};
  // In F0 B0 F1 B1 W0 W1 the head's gradients come in the forwards.
  EXPECT_EQ(gradients_of(plan_units(late, 1, units)), "2+ 2! 1+ 0+ 1! 0! ");
}

TEST(UnitPlan, ATiedTableIsReducedWhenItsEmbeddingIsDone) {
  RankUnits units = units_of(2, 10, 30, 40);
  units.chunks[0].head = 0;
  units.gathered_bytes.pop_back();
  const UnitPlan plan = plan_units(one_stage(1), 0, units);
  EXPECT_EQ(gradients_of(plan), "2! 1! 0! ");
  EXPECT_EQ(text_of(plan), "+0 +1 f0 +2 f1 f2 f0 -0 b2 -2 b1 -1 ");
}

TEST(UnitPlan, HasOneBufferForATableAndTwoForBlocksThatFollowEachOther) {
  const auto slots = [](const RankUnits& units) { return units.slots; };
  EXPECT_EQ(slots(units_of(2, 10, 30, 0)), (std::map<int64_t, int>{{10, 2}, {30, 1}}));
  EXPECT_EQ(slots(units_of(1, 10, 30, 0)), (std::map<int64_t, int>{{10, 1}, {30, 1}}));
  // Budgets with room for two more blocks, for all blocks, and for the second table too.
  EXPECT_EQ(slots(units_of(5, 10, 30, 75)), (std::map<int64_t, int>{{10, 4}, {30, 1}}));
  EXPECT_EQ(slots(units_of(5, 10, 30, 105)), (std::map<int64_t, int>{{10, 5}, {30, 1}}));
  EXPECT_EQ(slots(units_of(5, 10, 30, 110)), (std::map<int64_t, int>{{10, 5}, {30, 2}}));
}

TEST(UnitPlan, BuffersAreCountedBySize) {
  const RankUnits units = units_of(3, 10, 30, 0);
  EXPECT_EQ(gathered_peak(plan_units(one_stage(2), 0, units), units), 50);
  EXPECT_EQ(slot_bytes(units.slots), 50);
}

}  // namespace
}  // namespace longhaul::layout
