#include "longhaul/train/log/other_results.h"

#include <gtest/gtest.h>

namespace longhaul::train {
namespace {

class OtherResults : public ::testing::Test {
 protected:
  OtherResults() {
    // Thirteen steps of 2 seconds, the first of 20, in a bit more than two epochs of six
    // steps. A save of 4 seconds follows step 12.
    facts_.config.batch.global_size = 1024;
    facts_.config.data.seq_len = 128;
    facts_.config.model.config = "models/bert-large-uncased/config.json";
    facts_.config.data.train.emplace_back().path.entries = {"data/wiki_8k/"};
    facts_.sequences = 6 * 1024;
    double time = 1000.0;
    for (int64_t step = 1; step <= 13; ++step) {
      run::StepRecord record;
      record.step = step;
      record.loss = 3.0 - 0.125 * static_cast<double>(step);
      record.step_time = step == 1 ? 20.0 : 2.0;
      time += record.step_time + (step == 13 ? 4.0 : 0.0);
      record.time = time;
      record.epoch = static_cast<double>(step) / 6.0;
      records_.add(record);
    }
  }

  Json parameters(ResultsForm form) {
    facts_.config.log.results = form;
    return other_parameters(facts_, ours_);
  }
  /// Returns each metric on a line: name, value, units, and the further fields in their
  /// order.
  std::string metrics(ResultsForm form, double seconds = 100.0) {
    facts_.config.log.results = form;
    std::string lines;
    for (Json one : other_metrics(facts_, ours_, records_, seconds)) {
      EXPECT_EQ(one["Timestamp"].get<std::string>().substr(19), one_end(one));
      one.erase("Timestamp");
      lines += json_text(one) + "\n";
    }
    return lines;
  }
  static std::string one_end(const Json& one) {
    return one["Timestamp"].get<std::string>().substr(19, 7) + "+00:00";
  }

  ResultsFacts facts_;
  Json ours_ = {
      {"World size", 64},
      {"Data parallel degree", 2},
      {"Seed", 1234},
      {"Warmup steps", 2000},
      {"Total steps", 30000},
      {"Batch size", 1},
      {"Batch size per replica", 512},
      {"Sequence length", 128},
      {"Data type", "bfloat16"},
      {kAccumulationParameter, 512},
      {"Model configuration",
       {{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"}}},
  };
  monitor::Records records_;
};

TEST_F(OtherResults, OfThePipelineScriptHaveItsEightParameters) {
  EXPECT_EQ(parameters(ResultsForm::Nxd), Json::parse(R"({
    "Model": "llama", "World size": 64, "Data parallel degree": 2, "Batch size": 512,
    "Total steps": 30000, "Seed": 1234, "Warmup steps": 2000, "Dataset": "wiki_8k"})"));
}

TEST_F(OtherResults, OfThePipelineScriptHaveTheFourFinalMetrics) {
  // The first window ends with step 10. The windows of steps 11 to 13 have 20, 20 and 24
  // seconds.
  EXPECT_EQ(
      metrics(ResultsForm::Nxd),
      R"({"AdditionalData":{"Epoch":2,"Global step":13},"MeasuredValue":1.375,"MetricName":"Final loss","Units":""}
{"AdditionalData":{"Epoch":2,"Global step":13},"MeasuredValue":1.6667,"MetricName":"Time to train","Units":"minutes"}
{"AdditionalData":{"Epoch":2,"Global step":13},"MeasuredValue":483.5556,"MetricName":"Average throughput","Units":"seq/s"}
{"AdditionalData":{"Epoch":2,"Global step":13},"MeasuredValue":512.0,"MetricName":"Peak throughput","Units":"seq/s"}
)");
}

TEST_F(OtherResults, OfTheZeroScriptHaveThePassInBatchSizeAndTheEarlyExitInSteps) {
  facts_.config.run.stop_after = 500;
  facts_.config.optimizer.lr = 4e-4;
  facts_.config.optimizer.weight_decay = 0.01;
  const Json found = parameters(ResultsForm::NxdZero1);
  EXPECT_EQ(found["Batch size"], 1);
  EXPECT_EQ(found["Total steps"], 500);
  EXPECT_EQ(found["Gradient accumulation microsteps"], 512);
  EXPECT_EQ(found["Data type"], "torch.bfloat16");
  EXPECT_EQ(found["Model configuration"],
            "LlamaConfig {\n  \"architectures\": [\n    \"LlamaForCausalLM\"\n  ],\n  "
            "\"model_type\": \"llama\"\n}\n");
  EXPECT_EQ(found["Optimizer"],
            "AdamW (\nParameter Group 0\n    betas: (0.9, 0.95)\n    eps: 1e-08\n    lr: "
            "0.0004\n    weight_decay: 0.01\n\nParameter Group 1\n    betas: (0.9, "
            "0.95)\n    eps: 1e-08\n    lr: 0.0004\n    weight_decay: 0.0\n)");
  EXPECT_TRUE(found["Environment variables"].is_object());
  EXPECT_EQ(found.size(), 13U);
}

TEST_F(OtherResults, OfTheZeroScriptHaveTwoMetricsForEachEpochBeforeTheFinalOnes) {
  const std::string found = metrics(ResultsForm::NxdZero1);
  EXPECT_EQ(
      found.substr(0, found.find("Final loss")),
      R"({"AdditionalData":{"Epoch":0,"Global step":6,"Microstep":3072},"MeasuredValue":2.25,"MetricName":"Loss","Units":""}
{"AdditionalData":{"Epoch":0,"Global step":6,"Microstep":3072},"MeasuredValue":204.8,"MetricName":"Throughput","Units":"seq/s"}
{"AdditionalData":{"Epoch":1,"Global step":12,"Microstep":6144},"MeasuredValue":1.5,"MetricName":"Loss","Units":""}
{"AdditionalData":{"Epoch":1,"Global step":12,"Microstep":6144},"MeasuredValue":512.0,"MetricName":"Throughput","Units":"seq/s"}
{"AdditionalData":{"Epoch":2,"Global step":13,"Microstep":6656},"MeasuredValue":1.375,"MetricName":"Loss","Units":""}
{"AdditionalData":{"Epoch":2,"Global step":13,"Microstep":6656},"MeasuredValue":426.6666666666667,"MetricName":"Throughput","Units":"seq/s"}
{"AdditionalData":{"Epoch":2,"Global step":13,"Microstep":6656},"MeasuredValue":1.375,"MetricName":")");
}

TEST_F(OtherResults, OfARestartBeginANewWindowAndLeaveItsFirstTenStepsOut) {
  run::StepRecord again;
  again.attempt = 2;
  again.step = 14;
  again.loss = 1.0;
  again.step_time = 8.0;
  again.time = 5000.0;
  again.epoch = 14.0 / 6.0;
  records_.add(again);
  const std::string found = metrics(ResultsForm::NxdZero1);
  EXPECT_NE(found.find(R"("MeasuredValue":483.5556,"MetricName":"Average throughput")"),
            std::string::npos)
      << found;
  EXPECT_NE(found.find(R"("MeasuredValue":128.0,"MetricName":"Throughput")"),
            std::string::npos)
      << found;
}

TEST_F(OtherResults, OfALogOfSomeStepsHaveTheThroughputOfThese) {
  facts_.config.log.every = 5;
  // Only steps 5 and 10 are logged. The script takes the throughput over ten steps, so a
  // window has two logged steps.
  const std::string found = metrics(ResultsForm::NxdZero1);
  EXPECT_NE(found.find(fmt::format(R"("MeasuredValue":{},"MetricName":"Peak throughput")",
                                   10240.0 / 38.0)),
            std::string::npos)
      << found;
}

TEST_F(OtherResults, OfTheBertScriptHaveAnEntryForEachRoundOfShards) {
  // Two replicas read six shards in three rounds. The script counts one shard less than
  // there are, so its epoch has five rounds.
  facts_.shards = 6;
  const std::string found = metrics(ResultsForm::Bert);
  EXPECT_EQ(
      found.substr(0, found.find('\n')),
      R"({"AdditionalData":{"Epoch":0,"File index":1,"Global step":2,"Microstep":1024},"MeasuredValue":2.75,"MetricName":"Loss","Units":""})");
  EXPECT_NE(
      found.find(
          R"({"AdditionalData":{"Epoch":1,"File index":1,"Global step":12,"Microstep":6144},"MeasuredValue":1.5,"MetricName":"Loss")"),
      std::string::npos)
      << found;
  EXPECT_NE(found.find(R"("MetricName":"FinalLoss")"), std::string::npos);
  EXPECT_NE(found.find(R"("MetricName":"TimeToTrain")"), std::string::npos);
  EXPECT_NE(found.find(R"("MetricName":"PeakThroughput")"), std::string::npos);
  EXPECT_EQ(found.find("Expected"), std::string::npos);
}

TEST_F(OtherResults, OfTheBertScriptHaveTheExpectedThroughput) {
  facts_.config.run.expect = ExpectedRate{.tokens_per_s = 128.0 * 400.0};
  const std::string found = metrics(ResultsForm::Bert);
  EXPECT_NE(found.find(R"("Derived":380.0,"Expected":400.0,"MeasuredValue":)"),
            std::string::npos)
      << found;
}

TEST_F(OtherResults, OfTheBertScriptNameTheModelAndCountShardsOfACheckpoint) {
  facts_.shards = 6;
  facts_.config.checkpoint.every = 4;
  const Json found = parameters(ResultsForm::Bert);
  EXPECT_EQ(found["Model"], "bert-large-uncased");
  EXPECT_EQ(found["Shards per checkpoint"], 2);
  EXPECT_EQ(found["Sequence length"], 128);
  EXPECT_EQ(found.size(), 15U);
}

TEST_F(OtherResults, OfNoStepHaveNoMetrics) {
  records_.clear();
  EXPECT_EQ(metrics(ResultsForm::NxdZero1), "");
}

}  // namespace
}  // namespace longhaul::train
