#include "longhaul/optim/update_counts.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"

namespace longhaul::optim {
namespace {

TEST(UpdateCounts, WhatWasFrozenCountsFromItsOwnFirstUpdate) {
  UpdateCounts counts;
  for (int i = 0; i < 3; ++i) counts.count({"a"});
  EXPECT_EQ(counts.of("a"), 0);
  EXPECT_EQ(counts.of("b"), 3);
  counts.count({"b"});
  EXPECT_EQ(counts.of("a"), 1);
  EXPECT_EQ(counts.of("b"), 3);
  EXPECT_EQ(counts.of_run(), 4);
  counts.begin_anew({"b"});
  counts.count({});
  EXPECT_EQ(counts.of("a"), 2);
  EXPECT_EQ(counts.of("b"), 1);
  EXPECT_EQ(counts.of("c"), 5);
}

TEST(UpdateCounts, SurviveJsonAndListOnlyWhatHadFewer) {
  const UpdateCounts counts(7, {{"a", 0}, {"b", 3}, {"c", 3}, {"d", 7}});
  EXPECT_EQ(counts.fewer_to_json(), Json::parse(R"([{"updates": 0, "parameters": ["a"]},
                            {"updates": 3, "parameters": ["b", "c"]}])"));
  EXPECT_EQ(UpdateCounts::from_json(7, counts.fewer_to_json()), counts);
  EXPECT_EQ(UpdateCounts(7).fewer_to_json(), Json::array());
}

TEST(UpdateCounts, RefuseNumbersThatNoRunMakes) {
  EXPECT_THROW(UpdateCounts(2, {{"a", 3}}), InputError);
  EXPECT_THROW(UpdateCounts(2, {{"a", -1}}), InputError);
}

}  // namespace
}  // namespace longhaul::optim
