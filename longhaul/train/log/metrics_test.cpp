#include "longhaul/train/log/metrics.h"

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
  m.tflops_per_device = 27.64;
  m.epoch = 0.0545;
  m.loss = 1.679;
  m.grad_norm = 10.75;
  m.lr = 3.748e-8;
  RunningMeans means(2);
  const std::string line =
      "step 5 epoch 0.0545 step_time 285.120s throughput 3.59 seq/s 29421 tok/s 27.64 "
      "TFLOP/s per device mfu 29.1% loss 1.67900 grad norm 10.750 lr 3.748e-08";
  means.add(m);
  EXPECT_EQ(log_line(m, means), line);
  means.add(m);
  EXPECT_EQ(log_line(m, means),
            line +
                "; mean of 2: step_time 285.120s throughput 3.59 seq/s 29421 tok/s "
                "loss 1.67900");
}

TEST(MetricsWriter, LogEveryThinsTheLogOnly) {
  const TestDirectory dir;
  ::testing::internal::CaptureStdout();
  {
    system::Logger log = system::Logger::to_file(dir / "log.txt");
    MetricsWriter writer(dir.path(), log, 10, {});
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

TEST(MetricsWriter, ALineHasTheMeansOfItsWindow) {
  const TestDirectory dir;
  ::testing::internal::CaptureStdout();
  {
    system::Logger log = system::Logger::to_file(dir / "log.txt");
    MetricsWriter writer(dir.path(), log, 5, {}, 4);
    for (int64_t step = 1; step <= 10; ++step) writer.step(step_of(step, 1, 2.0), {});
  }
  // The losses of steps 7 to 10 are 1.3 to 1.0.
  EXPECT_HAS(::testing::internal::GetCapturedStdout(),
             "loss 1.00000 grad norm 1.000 lr 0.000e+00; mean of 4: step_time 2.000s "
             "throughput 5.00 seq/s 0 tok/s loss 1.15000\n");
}

TEST(MetricsWriter, ValidationAndEventsHaveLinesOfTheirOwn) {
  const TestDirectory dir;
  ::testing::internal::CaptureStdout();
  {
    system::Logger log = system::Logger::to_file(dir / "log.txt");
    MetricsWriter writer(dir.path(), log, 1, dir / "tensorboard");
    writer.begin(0, 200);
    writer.validation({200, 1, 1000.0, 3.5, 1.652, "wiki"});
    writer.event(run::event_line("checkpoint", {{"step", 5}, {"seconds", 61.2}}));
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

TEST(MetricsWriter, LoadsOfExpertsAreAnEventAndScalarsByLayer) {
  const TestDirectory dir;
  {
    system::Logger silent;
    MetricsWriter writer(dir.path(), silent, 1, dir / "tensorboard");
    writer.begin(0, 4);
    run::StepRecord record = step_of(4, 1, 1.0);
    record.expert_use = 0.5;
    writer.step(record, {});
    writer.expert_loads({4, {{1, 1.5, 0.25, {6, 0, 2}}}});
  }
  EXPECT_EQ(lines_of(dir / "metrics.jsonl").at(0)["expert_use"], 0.5);
  const Json event = lines_of(dir / "events.jsonl").at(0);
  EXPECT_EQ(event["event"], "expert_loads");
  EXPECT_EQ(event["layers"][0]["counts"], Json({6, 0, 2}));
  std::string scalars;
  for (const auto& file : fs::directory_iterator(dir / "tensorboard")) {
    scalars += read_text(file.path());
  }
  for (const char* tag : {"expert_use", "expert_use/layer_1", "router_entropy/layer_1"}) {
    EXPECT_HAS(scalars, tag);
  }
  EXPECT_EQ(scalars.find("expert_busiest"), std::string::npos);
}

TEST(MetricsWriter, ATornLineOfACrashIsSaidInTheLog) {
  const TestDirectory dir;
  write_file(dir / "metrics.jsonl", "{\"step\":1}\n{\"st");
  ::testing::internal::CaptureStdout();
  system::Logger log = system::Logger::to_file(dir / "log.txt");
  const MetricsWriter writer(dir.path(), log, 1, {});
  EXPECT_HAS(::testing::internal::GetCapturedStdout(), "torn line of 4 bytes");
}

class Results : public ::testing::Test {
 protected:
  void write(const std::vector<run::StepRecord>& steps) {
    system::Logger silent;
    MetricsWriter writer(dir_.path(), silent, 1, {});
    for (const run::StepRecord& step : steps) writer.step(step, {});
  }
  Json results(int64_t unreadable = 0) {
    const Json parameters = {{"Model", "models/llama"},
                             {"Batch size", 10},
                             {kAccumulationParameter, 8},
                             {"Total steps", 4}};
    EXPECT_EQ(write_results(dir_.path(), parameters), unreadable);
    return read_json(dir_ / "results.json")["results"];
  }
  Json metric(const Json& json, const std::string& name) {
    for (const Json& one : json["metrics"]) {
      if (one["MetricName"] == name) return one;
    }
    ADD_FAILURE() << "no " << name;
    return {{"MeasuredValue", 0.0}};
  }
  double value(const Json& json, const std::string& name) {
    return metric(json, name)["MeasuredValue"].get<double>();
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

TEST_F(Results, HaveTheRatesTheMemoryAndWhatWasValidated) {
  run::StepRecord first = step_of(1, 1, 60.0);
  first.memory_peak = 5e9;
  run::StepRecord second = step_of(2, 1, 2.0);
  second.mfu = 0.5;
  second.tokens_per_s = 300.0;
  second.tflops_per_device = 50.0;
  second.memory_peak = 4e9;
  second.epoch = 0.25;
  run::StepRecord third = step_of(3, 1, 6.0);
  third.mfu = 0.3;
  third.tokens_per_s = 100.0;
  third.tflops_per_device = 30.0;
  third.memory_peak = 4e9;
  third.epoch = 0.5;
  write({first, second, third});
  system::Logger silent;
  MetricsWriter writer(dir_.path(), silent, 1, {});
  writer.validation({2, 1, 1000.0, 3.5, 1.9, "wiki"});
  writer.validation({3, 1, 1000.0, 3.5, 1.7, "wiki"});
  const Json json = results();
  EXPECT_DOUBLE_EQ(value(json, "MFU"), 0.35);
  EXPECT_DOUBLE_EQ(value(json, "Average token throughput"), 150.0);
  EXPECT_DOUBLE_EQ(value(json, "Average throughput per device"), 35.0);
  EXPECT_DOUBLE_EQ(value(json, "Peak memory"), 5e9);
  EXPECT_DOUBLE_EQ(value(json, "Final validation loss"), 1.7);
  EXPECT_EQ(metric(json, "Final validation loss")["AdditionalData"]["Validation set"],
            "wiki");
  const Json at = metric(json, "Final loss")["AdditionalData"];
  EXPECT_EQ(at["Global step"], 3);
  EXPECT_EQ(at["Microstep"], 24);
  EXPECT_EQ(at["Epoch"], 0.5);
}

TEST_F(Results, AreBroughtUpToWhatTheSupervisorDidAfterwards) {
  settle_time_to_train(dir_.path());  // results.json is not there yet
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

TEST_F(Results, InAnotherFormAreBroughtUpInThatForm) {
  write({step_of(1, 1, 90.5, 1090.5)});
  const Json written = {{"results",
                         {{"metrics",
                           {{{"MetricName", "TimeToTrain"},
                             {"MeasuredValue", 1.0},
                             {"Units", "minutes"},
                             {"AdditionalData", {{"Epoch", 0}}}}}}}}};
  write_file(dir_ / "results.json", json_text(written));
  settle_time_to_train(dir_.path());
  Json wanted = written;
  wanted["results"]["metrics"][0]["MeasuredValue"] = 1.5083;
  EXPECT_EQ(read_json(dir_ / "results.json"), wanted);
}

TEST_F(Results, OfASingleStepHaveAThroughput) {
  write({step_of(1, 1, 2.0)});
  EXPECT_DOUBLE_EQ(value(results(), "Average throughput"), 5.0);
}

TEST_F(Results, OfStepsWithoutATimeHaveNoThroughput) {
  run::StepRecord step = step_of(1, 1, 0.0);
  step.seqs_per_s = run::kNoFigure;
  step.memory_peak = run::kNoFigure;
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
