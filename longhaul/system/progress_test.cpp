#include "longhaul/system/progress.h"

#include <gtest/gtest.h>

namespace longhaul::system {
namespace {

TEST(ProgressLine, ShowsPartRateAndTimeLeft) {
  EXPECT_EQ(progress_line("eval", "sequences", 1200, 4800, 20.0),
            "eval 1,200 of 4,800 sequences (25.0%), 60 sequences/s, 1m 00s left");
}

TEST(ProgressLine, BytesAreForPeople) {
  EXPECT_EQ(progress_line("data build", "bytes", 2500000, 10000000, 2.5),
            "data build 2.5 MB of 10.0 MB (25.0%), 1.0 MB/s, 8 s left");
}

TEST(ProgressLine, WithoutATotalThereIsNoTimeLeft) {
  EXPECT_EQ(progress_line("read", "records", 5000, 0, 2.0),
            "read 5,000 records, 2,500 records/s");
}

TEST(ProgressLine, SlowWorkHasARateToo) {
  EXPECT_EQ(progress_line("run", "steps", 1, 5, 4.0),
            "run 1 of 5 steps (20.0%), 0.25 steps/s, 16 s left");
}

TEST(ProgressLine, TheBeginningAndMoreThanTheTotalAreNoTrouble) {
  EXPECT_EQ(progress_line("run", "steps", 0, 5, 0.0),
            "run 0 of 5 steps (0.0%), 0.00 steps/s");
  EXPECT_EQ(progress_line("run", "steps", 6, 5, 6.0),
            "run 6 of 5 steps (100.0%), 1.00 steps/s, 0 s left");
}

TEST(ProgressLine, WhatWasDoneEarlierCountsInThePartAndNotInTheRate) {
  EXPECT_EQ(progress_line("train", "steps", 60, 100, 20.0, 50),
            "train 60 of 100 steps (60.0%), 0.50 steps/s, 1m 20s left");
  EXPECT_EQ(progress_line("train", "steps", 50, 100, 3.0, 50),
            "train 50 of 100 steps (50.0%), 0.00 steps/s");
  // A rollback has gone back to step 40, although this start began at step 50.
  EXPECT_EQ(progress_line("train", "steps", 40, 100, 3.0, 50),
            "train 40 of 100 steps (40.0%), 0.00 steps/s");
}

TEST(Progress, InALogNothingIsPrintedBeforeTenSeconds) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress("run", "steps");
    progress.update(1, 5);
    progress.update(5, 5);
    progress.finish();
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace longhaul::system
