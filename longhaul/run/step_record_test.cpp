#include "longhaul/run/step_record.h"

#include <gtest/gtest.h>

#include <cmath>

namespace longhaul::run {
namespace {

RunRecord read(std::string line) {
  const size_t size = line.size();
  line.append(kRecordPadding, '\0');
  return read_record(std::string_view(line).substr(0, size));
}

StepRecord full_record() {
  StepRecord record;
  record.step = 7;
  record.attempt = 2;
  record.time = 1700000000.25;
  record.step_time = 0.5;
  record.data_time = 0.125;
  record.tokens = 9007199254740992.0;
  record.loss = 1.0 / 3.0;
  record.grad_norm = 10.75;
  record.lr = 3.748e-8;
  record.seqs_per_s = 32.0;
  record.tokens_per_s = 65536.0;
  record.mfu = 0.25;
  record.mfu_causal = 0.1875;
  record.tflops_per_device = 0.5;
  record.peak_tflops_per_device = 2.0;
  record.memory_peak = 123456789.0;
  record.host_memory = 987654321.0;
  record.host_anonymous = 900000000.0;
  record.host_file = 80000000.0;
  record.epoch = 0.75;
  return record;
}

TEST(StepRecord, ItsLineHasItsOneForm) {
  const SourceTokens sources = {{"wiki", 96}, {"data/code", 32}};
  EXPECT_EQ(to_json(full_record(), sources).dump(),
            R"({"attempt":2,"data_time_s":0.125,"epoch":0.75,"grad_norm":10.75,)"
            R"("host_anonymous_bytes":900000000,"host_file_bytes":80000000,)"
            R"("host_memory_bytes":987654321,"loss":0.3333333333333333,)"
            R"("lr":3.748e-08,"memory_peak_bytes":123456789,"mfu":0.25,)"
            R"("mfu_causal":0.1875,"peak_tflops_per_device":2.0,"seqs_per_s":32.0,)"
            R"("source_tokens":{"data/code":32,"wiki":96},"step":7,"step_time_s":0.5,)"
            R"("tflops_per_device":0.5,"time":1700000000.25,"tokens":9007199254740992,)"
            R"("tokens_per_s":65536.0})");
}

TEST(StepRecord, HasTheHashOfItsDataWhereTheProgramWroteOne) {
  StepRecord record = full_record();
  EXPECT_FALSE(to_json(record, {}).contains(kDataHashKey));
  record.data_hash = 0x0fedcba987654321;
  const Json json = to_json(record, {});
  EXPECT_EQ(json[kDataHashKey], "0fedcba987654321");
  EXPECT_EQ(std::get<StepRecord>(read(json.dump())).data_hash, record.data_hash);
  Json bad = json;
  for (const Json& value : {Json("zz"), Json("1 "), Json(7), Json()}) {
    bad[kDataHashKey] = value;
    EXPECT_FALSE(std::get<StepRecord>(read(bad.dump())).data_hash) << value;
  }
}

TEST(StepRecord, HasFiguresOfExpertsWhereTheModelHasExpertsOnly) {
  StepRecord record = full_record();
  EXPECT_FALSE(to_json(record, {}).contains(kExpertUseKey));
  record.expert_use = 0.625;
  record.expert_busiest = 2.5;
  record.router_entropy = 1.75;
  const Json json = to_json(record, {});
  EXPECT_EQ(json["expert_use"], 0.625);
  EXPECT_EQ(json["expert_busiest"], 2.5);
  EXPECT_EQ(json["router_entropy"], 1.75);
  const RunRecord again = read(json.dump());
  ASSERT_TRUE(std::holds_alternative<StepRecord>(again));
  EXPECT_EQ(to_json(std::get<StepRecord>(again), {}), json);
}

TEST(StepRecord, HasFiguresOfPairsWhereTheRunTrainsOnPairsOnly) {
  StepRecord record = full_record();
  EXPECT_FALSE(to_json(record, {}).contains("rewards/chosen"));
  ValidationRecord validation{.step = 3, .time = 12.0, .loss = 0.5, .name = "held"};
  EXPECT_FALSE(to_json(validation).contains("logps/chosen"));
  EXPECT_TRUE(to_json(validation).contains("perplexity"));
  double value = 0.5;
  for (const PairFigure& figure : kPairFigures) {
    record.*figure.member = validation.pairs.*figure.member = value++;
  }
  const Json of_step = to_json(record, {}), of_validation = to_json(validation);
  for (const Json& json : {of_step, of_validation}) {
    EXPECT_EQ(json["rewards/chosen"], 0.5);
    EXPECT_EQ(json["rewards/rejected"], 1.5);
    EXPECT_EQ(json["rewards/margins"], 2.5);
    EXPECT_EQ(json["rewards/accuracies"], 3.5);
    EXPECT_EQ(json["logps/chosen"], 4.5);
    EXPECT_EQ(json["logps/rejected"], 5.5);
  }
  EXPECT_FALSE(of_validation.contains("perplexity"));
  EXPECT_EQ(to_json(std::get<StepRecord>(read(of_step.dump())), {}), of_step);
  EXPECT_EQ(to_json(std::get<ValidationRecord>(read(of_validation.dump()))),
            of_validation);
}

TEST(StepRecord, SaysOfABadStepOnlyThatItWasNotApplied) {
  StepRecord record = full_record();
  EXPECT_FALSE(to_json(record, {}).contains("applied"));
  record.applied = false;
  record.loss = std::nan("");
  const std::string line = to_json(record, {}).dump();
  EXPECT_NE(line.find(R"("applied":false)"), std::string::npos);
  EXPECT_NE(line.find(R"("loss":null)"), std::string::npos);
  const RunRecord again = read(line);
  ASSERT_TRUE(std::holds_alternative<StepRecord>(again));
  EXPECT_FALSE(std::get<StepRecord>(again).applied);
  EXPECT_TRUE(std::isnan(std::get<StepRecord>(again).loss));
}

TEST(StepRecord, EveryFigureReadsBackAsTheSameDouble) {
  const RunRecord again = read(to_json(full_record(), {{"wiki", 5}}).dump());
  ASSERT_TRUE(std::holds_alternative<StepRecord>(again));
  EXPECT_EQ(to_json(std::get<StepRecord>(again), {}), to_json(full_record(), {}));
}

TEST(StepRecord, OfAnotherVersionLacksFiguresAndNotDurations) {
  const RunRecord record = read(R"({"step":2,"grad_norm":null,"time":101,"new":[1]})");
  ASSERT_TRUE(std::holds_alternative<StepRecord>(record));
  const auto& step = std::get<StepRecord>(record);
  EXPECT_EQ(step.step, 2);
  EXPECT_EQ(step.attempt, 1);
  EXPECT_TRUE(step.applied);
  EXPECT_TRUE(std::isnan(step.mfu));
  EXPECT_TRUE(std::isnan(step.tokens));
  EXPECT_EQ(step.step_time, 0.0);
  EXPECT_EQ(step.data_time, 0.0);
}

TEST(ValidationRecord, ItsLineHasItsOneFormAndReadsBack) {
  const ValidationRecord record{200, 1, 1700000000.5, 3.5, 0.0, "wiki"};
  const std::string line = to_json(record).dump();
  EXPECT_EQ(line, R"({"attempt":1,"loss":0.0,"perplexity":1.0,"seconds":3.5,"step":200,)"
                  R"("time":1700000000.5,"validation":"wiki"})");
  const RunRecord again = read(line);
  ASSERT_TRUE(std::holds_alternative<ValidationRecord>(again));
  EXPECT_EQ(to_json(std::get<ValidationRecord>(again)), to_json(record));
}

TEST(ValidationRecord, OfATaskHasMetricsWithStandardErrorsAndReadsBack) {
  const ValidationRecord record{.step = 200,
                                .time = 1700000000.5,
                                .seconds = 3.5,
                                .name = "arc",
                                .figures = {{"acc", 0.25, 0.125}, {"bits_per_byte", 1.5}},
                                .questions = 12};
  const std::string line = to_json(record).dump();
  EXPECT_EQ(line, R"({"attempt":1,"metrics":{"acc":0.25,"acc_stderr":0.125,)"
                  R"("bits_per_byte":1.5},"questions":12,"seconds":3.5,"step":200,)"
                  R"("task":"arc","time":1700000000.5})");
  const RunRecord again = read(line);
  ASSERT_TRUE(std::holds_alternative<ValidationRecord>(again));
  EXPECT_TRUE(std::get<ValidationRecord>(again).of_task());
  EXPECT_EQ(to_json(std::get<ValidationRecord>(again)), to_json(record));
  EXPECT_EQ(describe(record.figures), "acc 0.2500 +- 0.1250, bits_per_byte 1.5000");
}

TEST(RunRecord, WhatIsNoRecordIsNone) {
  for (const char* line :
       {R"({"step":1,"task":"arc","time":5})", "", "garbage", "[1]", "{}",
        R"({"step":1,"time":5})", R"({"step":"x","grad_norm":1,"time":5})",
        R"({"step":1,"grad_norm":1})", R"({"step":-1,"grad_norm":1,"time":5})",
        R"({"step":1,"grad_norm":1,"time":1e12})", R"({"step":1,"grad_norm":1,"ti)"}) {
    EXPECT_TRUE(std::holds_alternative<std::monostate>(read(line))) << line;
  }
  const std::string longest = R"({"step":1,"grad_norm":1,"time":5,"x":")" +
                              std::string(kLongestRecord, 'x') + R"("})";
  EXPECT_TRUE(std::holds_alternative<std::monostate>(read(longest)));
}

}  // namespace
}  // namespace longhaul::run
