#include "longhaul/train/history/set_losses.h"

#include <gtest/gtest.h>

#include <limits>

namespace longhaul::train {
namespace {

std::vector<ValidationSource> sets_with(std::optional<double> old_domain) {
  return {{.name = "new", .path = {{"n"}}},
          {.name = "old", .path = {{"o"}}, .stop_above = old_domain}};
}

SetLosses losses_of(double newest) {
  SetLosses losses;
  losses.note("new", 0, 5.0);
  losses.note("old", 0, 1.5);
  losses.note("new", 10, 50.0);
  losses.note("old", 10, 1.25);
  losses.note("old", 20, newest);
  return losses;
}

TEST(SetLosses, AreJudgedByTheRunsFirstValidation) {
  EXPECT_FALSE(losses_of(1.75).risen(sets_with(0.25)));
  const auto risen = losses_of(1.8125).risen(sets_with(0.25));
  ASSERT_TRUE(risen);
  EXPECT_EQ(risen->describe(),
            "validation old loss 1.81250 at step 20 is 0.31250 above its 1.50000 at step "
            "0, more than stop_above = 0.25 of data.validation");
  EXPECT_FALSE(losses_of(1.8125).risen(sets_with(0.3125)));
}

TEST(SetLosses, OnlySetsWithABoundStopARun) {
  EXPECT_FALSE(losses_of(100.0).risen(sets_with(std::nullopt)));
  EXPECT_FALSE(SetLosses().risen(sets_with(0.0)));
  EXPECT_TRUE(losses_of(1.5001).risen(sets_with(0.0)));
  EXPECT_FALSE(losses_of(1.5).risen(sets_with(0.0)));
}

TEST(SetLosses, WhatIsNoNumberIsBeyondEveryBoundAlsoAfterAResume) {
  const SetLosses nan = losses_of(std::nan(""));
  EXPECT_TRUE(nan.risen(sets_with(1e9)));
  EXPECT_TRUE(SetLosses::from_json(parse_json(nan.to_json().dump(), "state"))
                  .risen(sets_with(1e9)));
  EXPECT_TRUE(losses_of(std::numeric_limits<double>::infinity()).risen(sets_with(1e9)));
}

TEST(SetLosses, SurviveStateJson) {
  const SetLosses losses = losses_of(1.0 / 3.0);
  EXPECT_EQ(SetLosses::from_json(parse_json(losses.to_json().dump(), "state")), losses);
}

TEST(SetLosses, OfARunThatBeginsAnewKeepTheirBegins) {
  SetLosses anew;
  anew.note("new", 3, 4.0);
  anew.take_begins(losses_of(9.0));
  EXPECT_FALSE(anew.risen(sets_with(0.25)));  // the state that had risen was undone
  anew.note("old", 5, 1.8125);
  ASSERT_TRUE(anew.risen(sets_with(0.25)));
  EXPECT_EQ(anew.risen(sets_with(0.25))->loss.first, 1.5);
}

}  // namespace
}  // namespace longhaul::train
