#include "longhaul/run/files.h"

#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace longhaul::run {
namespace {

TEST(RunFileNames, AStepReadsBackFromItsDirectorysName) {
  EXPECT_EQ(step_directory_name(5), "step_00000005");
  for (const int64_t step : {int64_t{0}, int64_t{5}, int64_t{123456789}}) {
    EXPECT_EQ(step_of(fs::path("runs/a/checkpoints") / step_directory_name(step)), step);
  }
}

TEST(RunFileNames, WhatWasSetAsideOrIsNoStepIsNone) {
  for (const char* name : {"step_00000005.failed_starts", "step_", "step_-5", "step_5x",
                           "step", "other", "step_99999999999999999999"}) {
    EXPECT_EQ(step_of(name), std::nullopt) << name;
  }
}

TEST(RunFileNames, TheNamesThatAreMadeHaveTheirOneForm) {
  EXPECT_EQ(trace_file(7), "trace_step_7.json");
  EXPECT_EQ(handed_nodes_file("17"), "control/excluded_of_17.json");
  EXPECT_EQ(stacks_file(1700000000.4), "control/stacks_1700000000.txt");
}

TEST(RunFileNames, RunsBesideAMissingOneAreNamed) {
  const TestDirectory dir;
  EXPECT_EQ(runs_below(dir.path()), "");
  fs::create_directory(dir / "a");
  fs::create_directory(dir / "other");
  write_file(dir / "a/metrics.jsonl", "");
  write_file(dir / "other/notes.txt", "");
  EXPECT_TRUE(holds_run(dir / "a"));
  EXPECT_EQ(runs_below(dir.path()), ", such as " + (dir / "a").string());
  EXPECT_EQ(runs_below(dir / "absent"), "");
}

}  // namespace
}  // namespace longhaul::run
