#include "longhaul/train/log/peak_rate.h"

#include <gtest/gtest.h>

namespace longhaul::train {
namespace {

constexpr double kTera = 1e12;

TEST(PeakRate, IsTheBestMeasurementAndToldOnce) {
  PeakRate peak("bf16");
  EXPECT_TRUE(peak.wants_measurement(0.1 * kTera, 5.0));
  peak.measured({0.5 * kTera}, 0.02);
  EXPECT_EQ(peak.settle(1, 0.1 * kTera),
            "mfu relates to a measured bf16 matmul rate of 0.500 TFLOP/s per rank");
  peak.measured({0.4 * kTera}, 0.02);
  EXPECT_EQ(peak.settle(2, 0.1 * kTera), std::nullopt);
  EXPECT_EQ(peak.value(), 0.5 * kTera);
  peak.measured({0.8 * kTera}, 0.02);
  EXPECT_EQ(peak.settle(3, 0.1 * kTera),
            "mfu relates to a measured bf16 matmul rate of 0.800 TFLOP/s per rank from "
            "step 3 on; the rate before was 0.500, measured on a busier machine");
}

TEST(PeakRate, AStepThatIsFasterAsksForAMeasurementAndIsNeverAboveOne) {
  PeakRate peak("fp32");
  peak.measured({0.5 * kTera}, 0.02);
  (void)peak.settle(1, 0.1 * kTera);
  // The step reached 139 % of the measured rate, so the machine was busy during the
  // measurement. It still is during the next one.
  EXPECT_TRUE(peak.wants_measurement(0.695 * kTera, 0.1));
  peak.measured({0.6 * kTera}, 0.02);
  EXPECT_EQ(
      peak.settle(2, 0.695 * kTera),
      "mfu relates to 0.695 TFLOP/s per rank from step 2 on: that step reached "
      "this rate, while fp32 products measured alone reach only 0.600; 100% means the "
      "fastest step so far");
  EXPECT_EQ(0.695 * kTera / peak.value(), 1.0);
  // A step that is only a little faster raises the rate, but the log has no line for it.
  EXPECT_FALSE(peak.wants_measurement(0.696 * kTera, 0.1));
  EXPECT_EQ(peak.settle(3, 0.696 * kTera), std::nullopt);
  EXPECT_EQ(peak.value(), 0.696 * kTera);
}

TEST(PeakRate, IsMeasuredAgainWhileThatCostsLittle) {
  PeakRate peak("fp32");
  peak.measured({0.5 * kTera}, 0.05);
  EXPECT_FALSE(peak.wants_measurement(0.1 * kTera, 9.0));
  int measurements = 1;
  for (double seconds = 0.0; seconds < 10000.0; seconds += 1.0) {
    if (!peak.wants_measurement(0.1 * kTera, seconds)) continue;
    peak.measured({0.5 * kTera}, 0.05);
    EXPECT_LE(0.05 * measurements++, 0.005 * seconds);
  }
  EXPECT_EQ(measurements, 8);
}

TEST(PeakRate, OfABusyMachineIsNotToBeTrustedAndIsMeasuredAgainSooner) {
  PeakRate peak("bf16");
  peak.measured({0.1 * kTera, 0.31}, 0.05);
  EXPECT_EQ(
      peak.settle(1, 0.05 * kTera),
      "mfu relates to a measured bf16 matmul rate of 0.100 TFLOP/s per rank; mfu is "
      "not to be trusted: other work on the machine left 31% of the processors to "
      "the measurement");
  EXPECT_FALSE(peak.wants_measurement(0.05 * kTera, 2.4));
  EXPECT_TRUE(peak.wants_measurement(0.05 * kTera, 2.6));
  peak.measured({0.6 * kTera, 0.97}, 0.05);
  EXPECT_EQ(peak.settle(7, 0.05 * kTera),
            "mfu relates to a measured bf16 matmul rate of 0.600 TFLOP/s per rank from "
            "step 7 on; the rate before was 0.100, measured on a busier machine");
  EXPECT_FALSE(peak.wants_measurement(0.05 * kTera, 19.0));
  // A later measurement that was disturbed does not lower the rate.
  peak.measured({0.2 * kTera, 0.4}, 0.05);
  EXPECT_EQ(peak.settle(9, 0.05 * kTera), std::nullopt);
}

TEST(PeakRate, OfAHardwareProfileIsTakenAsItIs) {
  PeakRate peak("bf16", 2.0 * kTera);
  EXPECT_FALSE(peak.wants_measurement(0.1 * kTera, 5.0));
  EXPECT_EQ(peak.settle(1, 0.1 * kTera),
            "mfu relates to 2.000 TFLOP/s per rank in bf16, the peak of run.hardware");
  EXPECT_EQ(peak.settle(2, 0.5 * kTera), std::nullopt);
  EXPECT_EQ(peak.value(), 2.0 * kTera);
  EXPECT_FALSE(peak.wants_measurement(2.5 * kTera, 50.0));
  EXPECT_EQ(
      peak.settle(3, 2.5 * kTera),
      "mfu relates to 2.500 TFLOP/s per rank from step 3 on: that step reached "
      "this rate, while bf16 products of run.hardware reach only 2.000; 100% means the "
      "fastest step so far");
}

}  // namespace
}  // namespace longhaul::train
