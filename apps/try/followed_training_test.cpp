#include "apps/try/followed_training.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/run/files.h"
#include "longhaul/run/step_record.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::apps {
namespace {

/// A run of ten steps, of which the test writes the files.
class Followed : public testing::Test {
 protected:
  Followed() {
    write_file(
        dir_ / run::kConfigFile,
        "[run]\ndir = \"r\"\nsteps = 10\n[model]\nconfig = \"m\"\n[data]\nseq_len = "
        "8\ntrain = [{ synthetic = 9 }]\n[batch]\nglobal_size = 1\n[optimizer]\nlr = "
        "1.0\n");
  }
  void step(int64_t number, double loss, double rate) {
    run::StepRecord record;
    record.step = number;
    record.step_time = 2.0;
    record.loss = loss;
    record.seqs_per_s = rate;
    add(to_json(record, {}));
  }
  void validation(int64_t number, double loss) {
    run::ValidationRecord record;
    record.step = number;
    record.loss = loss;
    record.name = "held-out";
    add(to_json(record));
  }
  FollowedTraining after_its_end(double most_seconds = 100.0) {
    FollowedTraining follow(dir_.path(), {most_seconds, false});
    follow.finish();
    return follow;
  }
  TestDirectory dir_;

 private:
  void add(const Json& line) {
    lines_ += json_text(line) + "\n";
    write_file(dir_ / run::kMetricsFile, lines_);
  }
  std::string lines_;
};

TEST_F(Followed, SaysWhereTheLossBeganAndEnded) {
  validation(0, 9.5);
  for (int64_t i = 1; i <= 10; ++i) step(i, 10.0 - static_cast<double>(i), 4.0);
  validation(10, 0.5);
  EXPECT_EQ(after_its_end().summary(),
            "  █▇▆▆▅▄▃▃▂▁  loss 9.000 to 0.000 in 10 steps, 20 s; held-out text 9.500 to "
            "0.500");
}

TEST_F(Followed, SaysThatItEndedEarlyAndNoLossThatWasNotMeasured) {
  validation(0, 9.5);
  step(1, 9.0, 4.0);
  step(2, 8.0, 4.0);
  EXPECT_EQ(after_its_end().summary(),
            "  █▁  loss 9.000 to 8.000 in 2 steps, 4 s; ended before step 10, since the "
            "time was over");
}

TEST_F(Followed, TheSpeedIsThatOfTheMiddleStepWithoutTheFirst) {
  step(1, 9.0, 0.5);
  EXPECT_EQ(after_its_end().sequences_per_s(), 0.5) << "there is no other";
  step(2, 9.0, 3.0);
  step(3, 9.0, 4.0);
  step(4, 9.0, 9.0);
  EXPECT_EQ(after_its_end().sequences_per_s(), 4.0);
  EXPECT_EQ(after_its_end().seconds_of_steps(), 8.0);
}

TEST_F(Followed, ARunThatTakesTooLongIsAskedToEndAfterItsFirstStep) {
  write_file(dir_ / run::kMetricsFile, "");
  (void)after_its_end(0.0);
  EXPECT_FALSE(fs::exists(dir_ / run::kStopFile)) << "nothing would be there to save";
  step(1, 9.0, 4.0);
  (void)after_its_end(100.0);
  EXPECT_FALSE(fs::exists(dir_ / run::kStopFile));
  (void)after_its_end(0.0);
  EXPECT_TRUE(fs::exists(dir_ / run::kStopFile));
}

TEST_F(Followed, ARunWithoutAStepHasNoSpeed) {
  EXPECT_THROW((void)after_its_end().sequences_per_s(), Error);
}

}  // namespace
}  // namespace longhaul::apps
