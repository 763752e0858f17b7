#include "longhaul/monitor/against.h"

#include <limits>

#include "tests/support/scratch_directory.h"

namespace longhaul::monitor {
namespace {

Reference curve(int64_t steps, double factor = 1.0) {
  Reference out;
  for (int64_t step = 1; step <= steps; ++step) {
    out.loss[step] = factor * (2.0 + 1.0 / static_cast<double>(step));
  }
  return out;
}

std::map<int64_t, double> read(const std::string& text) {
  const TestDirectory dir;
  write_file(dir / "golden", text);
  return read_reference(dir / "golden").loss;
}

TEST(Against, TheGateIsNinetyFivePercentOfPointsFromStep450) {
  const Reference golden = curve(1450);
  Reference run = golden;
  for (int64_t step = 1; step < 450; ++step) run.loss[step] = 1000.0;
  for (int64_t step = 500; step < 550; ++step) run.loss[step] *= 1.06;  // 50 of 1001
  EXPECT_TRUE(hold_against(run, golden, {}).passed);
  run.loss[900] *= 1.06;
  run.loss[450] *= 0.94;
  const AgainstResult missed = hold_against(run, golden, {});
  EXPECT_FALSE(missed.passed) << missed.lines[0];
  EXPECT_HAS(missed.lines[0], "loss: MISSES: 94.81% of 1,001 points from step 450");
  EXPECT_HAS(missed.lines[0], "the first outside is step 450");
}

TEST(Against, APointThatIsNotFiniteLiesOutside) {
  const Reference golden = curve(460);
  Reference run = golden;
  run.loss[455] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(hold_against(run, golden, {}).passed);
  EXPECT_FALSE(hold_against(golden, run, {}).passed);
}

TEST(Against, WhatHasNoLossInBothSaysNothing) {
  Reference golden = curve(460);
  golden.loss[455] = std::numeric_limits<double>::quiet_NaN();
  Reference run = golden;
  const AgainstResult held = hold_against(run, golden, {});
  EXPECT_TRUE(held.passed);
  EXPECT_EQ(held.json["loss"]["undefined"], 1);
  EXPECT_EQ(held.json["loss"]["points"], 10);
  EXPECT_HAS(held.lines[0], "1 step without a finite loss in both left out");
  // The comparison fails if no loss is left to compare.
  for (auto& [step, loss] : golden.loss) {
    loss = std::numeric_limits<double>::quiet_NaN();
  }
  run = golden;
  EXPECT_HAS(message_of<InputError>([&] { hold_against(run, golden, {}); }),
             "no common step with a finite loss");
}

TEST(Against, AThroughputThatIsNotKnownIsNoFigure) {
  Reference golden = curve(500);
  Reference run = golden;
  AgainstOptions options;
  options.throughput_rtol = 0.05;
  golden.seqs_per_s = 100.0;
  EXPECT_HAS(message_of<InputError>([&] { hold_against(run, golden, options); }),
             "the run says no throughput");
  run.seqs_per_s = 100.0;
  golden.seqs_per_s = 0.0;
  EXPECT_HAS(message_of<InputError>([&] { hold_against(run, golden, options); }),
             "the reference says no throughput");
}

TEST(Against, ThroughputMayBeHigherAndNotMuchLower) {
  Reference golden = curve(500);
  Reference run = golden;
  golden.seqs_per_s = 100.0;
  AgainstOptions options;
  options.throughput_rtol = 0.05;
  run.seqs_per_s = 250.0;
  EXPECT_TRUE(hold_against(run, golden, options).passed);
  run.seqs_per_s = 95.5;
  EXPECT_TRUE(hold_against(run, golden, options).passed);
  run.seqs_per_s = 94.0;
  const AgainstResult slow = hold_against(run, golden, options);
  EXPECT_FALSE(slow.passed);
  EXPECT_HAS(slow.lines[1], "MISSES: median 94 sequences/s against 100");
  golden.seqs_per_s.reset();
  EXPECT_HAS(message_of<InputError>([&] { hold_against(run, golden, options); }),
             "says no throughput");
}

TEST(Against, RunsThatEndBeforeTheGateAreComparedWholeAndSaySo) {
  Reference run = curve(40);
  const AgainstResult same = hold_against(run, curve(1000), {});
  EXPECT_TRUE(same.passed);
  EXPECT_HAS(same.lines[0], "no common step from step 450 on (the run has steps 1 to 40");
  EXPECT_HAS(same.lines[1], "100.00% of 40 points from step 0 on");
  for (int64_t step = 1; step <= 4; ++step) run.loss[step] *= 2.0;
  EXPECT_FALSE(hold_against(run, curve(1000), {}).passed);
  Reference other;
  other.loss[50] = 1.0;
  EXPECT_THROW(hold_against(run, other, {}), InputError);
}

TEST(Against, NothingInCommonIsAnErrorThatSaysWhatThereIs) {
  AgainstOptions options;
  options.from_step = 450;
  const std::string message =
      message_of<InputError>([&] { hold_against(curve(40), curve(1000), options); });
  EXPECT_HAS(message, "the run has steps 1 to 40, the reference steps 1 to 1,000");
  EXPECT_HAS(message, "--from-step");
}

TEST(Against, ReadsGoldenLossesInEveryForm) {
  const std::map<int64_t, double> two = {{1, 3.5}, {2, 2.5}};
  EXPECT_EQ(read("3.5\n2.5\n"), two);
  EXPECT_EQ(read("# golden\n1 3.5\n2   2.5"), two);
  EXPECT_EQ(read("loss,lr,step\n3.5,0.1,1\n2.5,0.1,2\n"), two);
  EXPECT_EQ(read("step\tloss\r\n1\t3.5\r\n2\t2.5\r\n"), two);
  EXPECT_EQ(
      read("{\"step\":1,\"loss\":3.5}\n{\"step\":1,\"validation\":\"v\",\"loss\":9}\n"
           "{\"step\":2,\"loss\":2.5}\n"),
      two);
}

TEST(Against, RefusesOtherTextWithFileAndLine) {
  for (const char* text : {"hello\n", "1 2\n3\nx y\n", "step,lr\n1,2\n", "1.5 2.0\n", "",
                           "{\"step\":1}\n", "1 2\n{\n"}) {
    EXPECT_HAS(message_of<InputError>([&] { read(text); }), "golden") << text;
  }
  EXPECT_HAS(message_of<InputError>([] { read("1 2\nx y\n"); }), "golden:2:");
}

}  // namespace
}  // namespace longhaul::monitor
