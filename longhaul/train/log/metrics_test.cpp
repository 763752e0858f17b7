#include "longhaul/train/log/metrics.h"

#include <cstdlib>
#include <sstream>
#include <vector>

#include "tests/support/scratch_directory.h"

namespace longhaul::train {
namespace {

run::StepRecord step_of(int64_t step, int attempt, double seconds,
                        double ended = 1000.0) {
  run::StepRecord m;
  m.time = ended;
  m.step = step;
  m.attempt = attempt;
  m.loss = 2.0 - 0.1 * static_cast<double>(step);
  m.grad_norm = 1.0;
  m.step_time = seconds;
  m.seqs_per_s = 10.0 / seconds;
  return m;
}

std::vector<Json> lines_of(const fs::path& path) {
  std::vector<Json> records;
  std::istringstream lines(read_text(path));
  for (std::string line; std::getline(lines, line);) {
    records.push_back(parse_json(line, "line"));
  }
  return records;
}

TEST(LogLine, HasItsOneForm) {
  run::StepRecord m;
  m.step = 5;
  m.step_time = 285.12;
  m.seqs_per_s = 1024 / 285.12;
  m.tokens_per_s = 1024 * 8192 / 285.12;
  m.mfu = 0.291;
  m.loss = 1.679;
  m.grad_norm = 10.75;
  m.lr = 3.748e-8;
  EXPECT_EQ(log_line(m),
            "step 5 step_time 285.120s throughput 3.59 seq/s 29421 tok/s mfu 29.1% loss "
            "1.67900 grad norm 10.750 lr 3.748e-08");
}

TEST(MetricsWriter, LogEveryThinsTheLogOnly) {
  const TestDirectory dir;
  ::testing::internal::CaptureStdout();
  {
    system::Logger log = system::Logger::to_file(dir / "log.txt");
    MetricsWriter writer(dir.path(), log, 10, false);
    for (int64_t step = 1; step <= 20; ++step) writer.step(step_of(step, 1, 1.0), {});
  }
  ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(lines_of(dir / "metrics.jsonl").size(), 20U);
  const std::string log = read_text(dir / "log.txt");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2);
  EXPECT_HAS(log, "step 10 ");
  EXPECT_HAS(log, "step 20 ");
  EXPECT_FALSE(fs::exists(dir / "tensorboard"));
}

TEST(MetricsWriter, ValidationAndEventsHaveLinesOfTheirOwn) {
  const TestDirectory dir;
  ::testing::internal::CaptureStdout();
  {
    system::Logger log = system::Logger::to_file(dir / "log.txt");
    MetricsWriter writer(dir.path(), log, 1, true);
    writer.validation({200, 1, 1000.0, 3.5, 1.652, "wiki"});
    writer.event("checkpoint", {{"step", 5}, {"seconds", 61.2}});
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "validation step 200 wiki loss 1.65200 perplexity 5.217\n");
  const Json record = lines_of(dir / "metrics.jsonl").at(0);
  EXPECT_EQ(record["validation"], "wiki");
  EXPECT_EQ(record["loss"], 1.652);
  const Json event = lines_of(dir / "events.jsonl").at(0);
  EXPECT_EQ(event["event"], "checkpoint");
  EXPECT_EQ(event["step"], 5);
  EXPECT_GT(event["time"].get<double>(), 1.7e9);
}

TEST(MetricsWriter, ATornLineOfACrashIsSaidInTheLog) {
  const TestDirectory dir;
  write_file(dir / "metrics.jsonl", "{\"step\":1}\n{\"st");
  ::testing::internal::CaptureStdout();
  system::Logger log = system::Logger::to_file(dir / "log.txt");
  const MetricsWriter writer(dir.path(), log, 1, false);
  EXPECT_HAS(::testing::internal::GetCapturedStdout(), "torn line of 4 bytes");
}

class Results : public ::testing::Test {
 protected:
  void write(const std::vector<run::StepRecord>& steps) {
    system::Logger silent;
    MetricsWriter writer(dir_.path(), silent, 1, false);
    for (const run::StepRecord& step : steps) writer.step(step, {});
  }
  Json results(int64_t unreadable = 0) {
    const Json parameters = {
        {"Model", "models/llama"}, {"Batch size", 10}, {"Total steps", 4}};
    EXPECT_EQ(write_results(dir_.path(), parameters), unreadable);
    return read_json(dir_ / "results.json")["results"];
  }
  double value(const Json& json, const std::string& name) {
    for (const Json& metric : json["metrics"]) {
      if (metric["MetricName"] == name) return metric["MeasuredValue"].get<double>();
    }
    ADD_FAILURE() << "no " << name;
    return 0.0;
  }
  TestDirectory dir_;
};

TEST_F(Results, CountTheWallTimeAndTheLossOfTheLast) {
  // Steps 1 to 3 are followed, ten seconds later, by a restart from the checkpoint of
  // step 2.
  write({step_of(1, 1, 60.0, 1060.0), step_of(2, 1, 2.0, 1062.0),
         step_of(3, 1, 2.0, 1064.0)});
  write({step_of(3, 2, 30.0, 1104.0), step_of(4, 2, 1.0, 1105.0)});
  const Json json = results();
  EXPECT_DOUBLE_EQ(value(json, "Time to train"), 105.0 / 60.0);
  const Json& seconds = json["metrics"][1]["AdditionalData"]["Seconds"];
  EXPECT_DOUBLE_EQ(seconds["restart"], 10.0);
  EXPECT_DOUBLE_EQ(seconds["redone"], 2.0);
  EXPECT_DOUBLE_EQ(seconds["compute"], 93.0);
  EXPECT_DOUBLE_EQ(value(json, "Final loss"), 1.6);
  // Steps 2 and 4 count; step 1 and the second step 3 warm up.
  EXPECT_DOUBLE_EQ(value(json, "Average throughput"), 20.0 / 3.0);
  EXPECT_DOUBLE_EQ(value(json, "Peak throughput"), 10.0);
  EXPECT_EQ(json["metrics"][1]["AdditionalData"]["Steps done again"], 1);
  EXPECT_EQ(json["parameters"]["Model"], "models/llama");
  EXPECT_EQ(json["parameters"]["Batch size"], 10);
}

TEST_F(Results, AreBroughtUpToWhatTheSupervisorDidAfterwards) {
  settle_time_to_train(dir_.path());  // there is no results.json yet
  write({step_of(1, 1, 60.0, 1060.0)});
  EXPECT_DOUBLE_EQ(value(results(), "Time to train"), 1.0);
  File::open_append(dir_ / "events.jsonl")
      .write(
          "{\"event\":\"supervisor_start\",\"time\":1000}\n"
          "{\"event\":\"supervisor_end\",\"time\":1090}\n");
  settle_time_to_train(dir_.path());
  const Json json = read_json(dir_ / "results.json")["results"];
  EXPECT_DOUBLE_EQ(value(json, "Time to train"), 1.5);
  EXPECT_DOUBLE_EQ(value(json, "Final loss"), 1.9);
}

TEST_F(Results, OfASingleStepHaveAThroughput) {
  write({step_of(1, 1, 2.0)});
  EXPECT_DOUBLE_EQ(value(results(), "Average throughput"), 5.0);
}

TEST_F(Results, OfStepsWithoutATimeHaveNoThroughput) {
  run::StepRecord step = step_of(1, 1, 0.0);
  step.seqs_per_s = run::kNoFigure;
  step.loss = run::kNoFigure;  // the loss of a batch without targets
  write({step});
  const Json metrics = results()["metrics"];
  for (const Json& metric : metrics) {
    if (metric["MetricName"] == "Time to train") continue;
    EXPECT_TRUE(metric["MeasuredValue"].is_null()) << metric["MetricName"];
  }
}

TEST_F(Results, OfNoStepHaveNoMetrics) {
  write({});
  EXPECT_TRUE(results()["metrics"].empty());
}

TEST_F(Results, PassOverDamagedLinesAndCountThem) {
  write({step_of(1, 1, 1.0)});
  File::open_append(dir_ / "metrics.jsonl")
      .write("garbage\n{\"grad_norm\": 1, \"step\": \"x\"}\n");
  write({step_of(2, 1, 1.0)});
  EXPECT_DOUBLE_EQ(value(results(2), "Final loss"), 1.8);
}

}  // namespace
}  // namespace longhaul::train
