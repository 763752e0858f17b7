#include "longhaul/drill/recovery.h"

#include <fmt/format.h>

#include <fstream>

#include "tests/support/scratch_directory.h"

namespace longhaul::drill {
namespace {

/// A run directory that grows line by line.
class GrowingRun {
 public:
  explicit GrowingRun(const fs::path& dir) : dir_(dir) { event("start", ""); }
  void step(int64_t step, int attempt, double time) const {
    std::ofstream(dir_ / "metrics.jsonl", std::ios::app)
        << fmt::format(R"({{"step": {}, "attempt": {}, "time": {}, "loss": 2.0, )"
                       R"("grad_norm": 1.0}})"
                       "\n",
                       step, attempt, time);
  }
  void event(const char* name, const char* more) const {
    std::ofstream(dir_ / "events.jsonl", std::ios::app)
        << fmt::format(R"({{"event": "{}", "time": 1.0{}}})"
                       "\n",
                       name, more);
  }

 private:
  fs::path dir_;
};

TEST(Recovery, EndsWithTheFirstStepThatNoneHadDone) {
  const TestDirectory dir;
  const GrowingRun lines(dir.path());
  // The run has restarted once before, which has nothing to do with this fault.
  lines.step(1, 1, 100.0);
  lines.step(2, 1, 101.0);
  lines.step(2, 2, 110.0);
  lines.event("fault", R"(, "cause": "an old one")");
  monitor::RunFiles run(dir.path());
  run.refresh();
  BeforeFault before = before_fault(run);
  EXPECT_EQ(before.step, 2);
  EXPECT_EQ(before.attempt, 2);
  before.time = 110.5;

  // The step that was under way still ends.
  lines.step(3, 2, 111.0);
  lines.event("fault", R"(, "cause": "rank 1 was killed")");
  run.refresh();
  Recovery recovery = recovery_since(run, before);
  EXPECT_FALSE(recovery.came_back);
  EXPECT_EQ(recovery.cause, "rank 1 was killed");

  lines.step(2, 3, 113.0);  // steps 2 and 3 are done again
  lines.step(3, 3, 114.0);
  run.refresh();
  recovery = recovery_since(run, before);
  EXPECT_FALSE(recovery.came_back);
  EXPECT_EQ(recovery.steps_redone, 2);

  lines.step(4, 3, 115.0);
  lines.event("fault", R"(, "cause": "a later one")");
  run.refresh();
  recovery = recovery_since(run, before);
  EXPECT_TRUE(recovery.came_back);
  EXPECT_DOUBLE_EQ(recovery.seconds_to_new_step, 4.5);
  EXPECT_EQ(recovery.steps_redone, 2);
  EXPECT_EQ(recovery.cause, "rank 1 was killed");
}

TEST(Recovery, NothingIsDoneAgainWhereACopyInMemoryWasKept) {
  const TestDirectory dir;
  const GrowingRun lines(dir.path());
  lines.step(1, 1, 100.0);
  monitor::RunFiles run(dir.path());
  run.refresh();
  BeforeFault before = before_fault(run);
  before.time = 100.0;
  lines.event("requeue", R"(, "reason": "too few nodes")");
  lines.step(2, 2, 103.0);
  run.refresh();
  const Recovery recovery = recovery_since(run, before);
  EXPECT_TRUE(recovery.came_back);
  EXPECT_EQ(recovery.steps_redone, 0);
  EXPECT_EQ(recovery.cause, "too few nodes");
}

}  // namespace
}  // namespace longhaul::drill
