#include "longhaul/data/bert/build_examples.h"

#include <gtest/gtest.h>

#include <map>

#include "longhaul/base/text.h"
#include "longhaul/data/bert/inspect_bert.h"
#include "longhaul/data/bert/shard_reader.h"
#include "tests/support/bert_examples.h"
#include "tests/support/small_tokenizer.h"

namespace longhaul::data {
namespace {

class BuildExamplesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (hdf5_version().empty()) GTEST_SKIP() << "a build without HDF5";
    Draws draws(4, "corpus", 0, 0);
    std::string lines;
    for (int d = 0; d < 200; ++d) {
      std::string text;
      for (int64_t s = draws.between(1, 12); s > 0; --s) {
        for (int64_t w = draws.between(1, 25); w > 0; --w) {
          text += fmt::format("w{} ", draws.below(kTestWords));
        }
        text += '\n';
      }
      lines += Json({{"text", text}}).dump() + "\n";
    }
    options_.inputs.arguments = {dir_.write("corpus.jsonl", lines).string()};
    options_.out = dir_ / "out";
    options_.examples.seq_len = 64;
    options_.examples.mask.max_predictions = 10;
    options_.duplicates = 3;
    options_.shards = 6;
    options_.threads = 2;
    tokenizer_ = test_bert_tokenizer(dir_);
  }
  BertRecord build() { return build_examples(*tokenizer_, options_); }
  /// Returns the content of each file of a directory, by name.
  static std::map<std::string, std::string> contents(const fs::path& dir) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(dir)) {
      if (entry.is_regular_file()) {
        files[fs::relative(entry.path(), dir).string()] = read_text(entry.path());
      }
    }
    return files;
  }

  static inline std::shared_ptr<ShardReader> reader_ = std::make_shared<ShardReader>();
  TestDirectory dir_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  BuildExamplesOptions options_;
};

TEST_F(BuildExamplesTest, ShardsHoldWhatTheRecordSays) {
  const BertRecord record = build();
  ASSERT_EQ(record.shards.size(), 6U);
  ExampleCounts sum;
  for (const BertShardInfo& info : record.shards) {
    const BertShard shard = reader_->read(options_.out / info.name, 5 + kTestWords + 1);
    EXPECT_EQ(shard.shape(), (ShardShape{info.rows, 64, 10}));
    EXPECT_EQ(info.counts.examples, info.rows);
    sum.add(info.counts);
  }
  EXPECT_EQ(sum.to_json(), record.counts.to_json());
  EXPECT_EQ(record.reading.at("documents"), 200);
  EXPECT_EQ(find_bert_shards({options_.out}).size(), 6U);
  EXPECT_TRUE(fs::exists(options_.out / "tokenizer" / "tokenizer.json"));
  EXPECT_EQ(dir_.listing(), "corpus.jsonl out tokenizer.json");
}

TEST_F(BuildExamplesTest, NothingStaysOfATextThatTheTokenizerCannotExpress) {
  const ChangedTokenizer changed(*tokenizer_);
  const std::string line = "{\"text\": \"w1 w2 w3\\nw4 w5 w6\"}\n";
  const fs::path more = dir_.write("more.jsonl", line + line);
  options_.inputs.arguments.push_back(more.string());
  options_.bad_records = BadRecords::Drop;
  (void)build_examples(changed, options_);
  const auto expected = contents(options_.out);
  dir_.write("more.jsonl", line + "{\"text\": \"w1 w2\\nw3 ~\"}\n" + line);
  options_.out = dir_ / "again";
  const BertRecord record = build_examples(changed, options_);
  EXPECT_EQ(record.reading.at("documents"), 202);
  for (const auto& [name, content] : contents(options_.out)) {
    if (!name.ends_with(".hdf5")) continue;
    EXPECT_EQ(content, expected.at(name)) << name;
  }
  options_.out = dir_ / "refused";
  options_.bad_records = BadRecords::Fail;
  EXPECT_HAS(input_error([&] { (void)build_examples(changed, options_); }),
             "more.jsonl:2: not tokenized: no token for ~");
}

TEST_F(BuildExamplesTest, InspectingSaysWhatTheRecordSaysAndWhetherItIsWhole) {
  EXPECT_FALSE(describe_bert(dir_ / "none").has_value());
  const BertRecord record = build();
  InspectOptions options;
  options.global_size = 16;
  const DataDescription found = describe_bert(options_.out, options).value();
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.json.at("examples"), record.counts.examples);
  EXPECT_EQ(found.json.at("seq_len"), 64);
  EXPECT_EQ(found.json.at("max_predictions"), 10);
  EXPECT_EQ(found.json.at("steps"), static_cast<double>(record.counts.examples) / 16);
  EXPECT_HAS(found.text, "200 documents");
  EXPECT_HAS(found.text,
             fmt::format("{} of 64 tokens in 6 shards", grouped(record.counts.examples)));
  uint64_t bytes = 0;
  for (const BertShardInfo& shard : record.shards) bytes += shard.bytes;
  EXPECT_EQ(verify_bert(options_.out), bytes);
  const fs::path shard = options_.out / record.shards[2].name;
  std::string changed = read_text(shard);
  changed[changed.size() / 2] ^= 1;
  write_text_atomic(shard, changed);
  EXPECT_HAS(input_error([&] { verify_bert(options_.out); }), record.shards[2].name);
  fs::remove(shard);
  const DataDescription damaged = describe_bert(options_.out).value();
  EXPECT_FALSE(damaged.complete);
  EXPECT_HAS(damaged.text, record.shards[2].name + ": missing");
}

TEST_F(BuildExamplesTest, BytesDoNotDependOnThreads) {
  options_.threads = 1;
  build();
  const auto one = contents(options_.out);
  options_.threads = 5;
  options_.out = dir_ / "five";
  build();
  EXPECT_EQ(contents(options_.out), one);
  EXPECT_EQ(one.size(), 8U);
  options_.examples.seed = 6;
  options_.out = dir_ / "other_seed";
  build();
  EXPECT_NE(contents(options_.out), one);
}

TEST_F(BuildExamplesTest, AKilledBuildGoesOnAfterTheShardsThatAreComplete) {
  build();
  const auto whole = contents(options_.out);
  options_.out = dir_ / "resumed";
  struct Stop {};
  for (int stop = 1; stop <= 6; ++stop) {
    const bool reading = stop == 1;
    int64_t before = -1;
    options_.progress = [&](const std::string& stage, int64_t done, int64_t) {
      if (stage == "examples" && before < 0) before = done;
      if (stage == (reading ? "reading" : "examples") && done >= stop - 1) throw Stop();
    };
    EXPECT_THROW(build(), Stop);
    EXPECT_TRUE(fs::exists(dir_ / "resumed.building"));
    EXPECT_FALSE(fs::exists(options_.out));
  }
  options_.progress = nullptr;
  options_.threads = 1;
  // A shard that was complete is not made again.
  const std::string first = "longhaul_training_00000-of-00006.hdf5";
  const auto made = fs::last_write_time(dir_ / "resumed.building" / first);
  const BertRecord record = build();
  EXPECT_EQ(fs::last_write_time(options_.out / first), made);
  EXPECT_EQ(record.shards.front().name, first);
  EXPECT_EQ(contents(options_.out), whole);
}

TEST_F(BuildExamplesTest, WhatAKilledBuildWasWritingIsNotKept) {
  build();
  const auto whole = contents(options_.out);
  options_.out = dir_ / "again";
  const fs::path work = dir_ / "again.building";
  fs::create_directories(work);
  write_text_durable(work / "plan.json.tmp.999999", "half");
  write_text_durable(work / "longhaul_training_00002-of-00006.hdf5.json.tmp.4", "half");
  write_text_durable(work / "longhaul_training_00003-of-00006.hdf5.tmp", "half");
  build();
  EXPECT_EQ(contents(options_.out), whole);
}

TEST_F(BuildExamplesTest, AnUnfinishedBuildWithOtherOptionsIsRefused) {
  struct Stop {};
  options_.progress = [](const std::string& stage, int64_t, int64_t) {
    if (stage == "examples") throw Stop();
  };
  EXPECT_THROW(build(), Stop);
  options_.progress = nullptr;
  options_.examples.seed = 99;
  options_.duplicates = 2;
  const std::string message = input_error([&] { build(); });
  EXPECT_HAS(message, "duplicates, seed");
  EXPECT_HAS(message, "--restart");
  options_.restart = true;
  build();
  EXPECT_EQ(BertRecord::read(options_.out).plan.at("seed"), 99);
}

TEST_F(BuildExamplesTest, WhatStandsAtThePlaceIsKept) {
  build();
  EXPECT_HAS(input_error([&] { build(); }), "--force");
  options_.force = true;
  build();
  options_.out = dir_ / "mine";
  fs::create_directory(options_.out);
  EXPECT_HAS(input_error([&] { build(); }), "holds no BERT examples");
}

TEST_F(BuildExamplesTest, AMissingOrShorterShardIsFound) {
  const BertRecord record = build();
  const fs::path shard = options_.out / record.shards[2].name;
  fs::resize_file(shard, fs::file_size(shard) - 1);
  EXPECT_HAS(input_error([&] { find_bert_shards({options_.out}); }),
             record.shards[2].name);
  fs::remove(shard);
  EXPECT_HAS(input_error([&] { find_bert_shards({options_.out}); }), "missing");
}

TEST_F(BuildExamplesTest, ShardsThatDoNotFitTheMemoryOrTheTextAreRefused) {
  options_.memory_bytes = 10'000;
  EXPECT_HAS(input_error([&] { build(); }), "--memory");
  options_.restart = true;
  options_.memory_bytes = uint64_t{1} << 30;
  options_.shards = 601;
  EXPECT_HAS(input_error([&] { build(); }), "do not fill 601 shards");
}

}  // namespace
}  // namespace longhaul::data
