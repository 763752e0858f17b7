#include "longhaul/data/bert/bert_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "longhaul/data/bert/shard_order.h"
#include "longhaul/data/bert/test_bert.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {
namespace {

class BertLoaderTest : public ::testing::Test {
 protected:
  BertLoaderTest() {
    if (hdf5_version().empty()) return;
    for (int i = 0; i < 5; ++i) {
      files_.push_back(write_test_shard(dir_, fmt::format("s_training_{}.hdf5", i),
                                        test_shard(10 + i, 8, 3, 100 * (i + 1))));
    }
    options_.batch_size = 4;
    options_.vocab_size = 30'000;
    options_.seq_len = 8;
    options_.seed = 3;
  }
  void SetUp() override {
    if (hdf5_version().empty()) GTEST_SKIP() << "a build without HDF5";
  }
  BertLoader loader(const BertPosition& start = {}) {
    return {reader_, files_, options_, start};
  }
  /// One line per batch: file, place, content.
  static std::vector<std::string> lines(BertLoader& from, int count) {
    std::vector<std::string> out;
    for (int i = 0; i < count; ++i) {
      const BertBatch& batch = from.next();
      out.push_back(fmt::format("{} {} {}", from.file().filename().string(),
                                from.position().to_json().dump(), batch.content_hash));
    }
    return out;
  }

  // Before any thread of the tests.
  static inline std::shared_ptr<ShardReader> reader_ = std::make_shared<ShardReader>();
  TestDirectory dir_;
  std::vector<fs::path> files_;
  BertLoaderOptions options_;
};

TEST_F(BertLoaderTest, AShardComesBackAsItWasWritten) {
  const BertShard shard = test_shard(5000, 128, 20);  // three chunks, the last not full
  const fs::path path = write_test_shard(dir_, "big.hdf5", shard);
  const BertShard read = reader_->read(path, 30'000);
  EXPECT_EQ(read.shape(), shard.shape());
  EXPECT_EQ(read.bytes(), shard.bytes());
  EXPECT_EQ(read_shard_unprotected(path).bytes(), shard.bytes());
}

TEST_F(BertLoaderTest, LabelsStandAtListedPositionsUpToTheFirstZero) {
  options_.batch_size = 2;
  options_.shuffle_rows = false;
  BertLoader from = loader();
  const BertBatch batch = from.next();
  const BertShard shard = reader_->read(from.file(), 30'000);
  for (int64_t row = 0; row < 2; ++row) {
    std::vector<int32_t> labels(8, kIgnore);
    for (size_t i = 0; i < 2; ++i) {  // the third position of each row is 0
      labels[static_cast<size_t>(shard.masked_lm_positions(row)[i])] =
          shard.masked_lm_ids(row)[i];
    }
    EXPECT_EQ(std::vector<int32_t>(batch.labels.begin() + row * 8,
                                   batch.labels.begin() + (row + 1) * 8),
              labels);
    EXPECT_EQ(batch.next_sentence[static_cast<size_t>(row)], row % 2);
  }
  EXPECT_EQ(batch.num_targets, 4);
  options_.max_predictions = 1;
  BertLoader fewer = loader();
  EXPECT_EQ(fewer.next().num_targets, 2);
}

TEST_F(BertLoaderTest, EachRowOfAShardComesOnceInRandomOrder) {
  options_.batch_size = 1;
  BertLoader from = loader();
  const BertShard shard = (from.next(), reader_->read(from.file(), 30'000));
  BertLoader again = loader();
  std::vector<int32_t> first_tokens;
  for (int64_t row = 0; row < shard.shape().rows; ++row) {
    first_tokens.push_back(again.next().tokens[0]);
  }
  EXPECT_EQ(again.file(), from.file());
  EXPECT_FALSE(std::ranges::is_sorted(first_tokens));
  std::ranges::sort(first_tokens);
  for (int64_t row = 0; row < shard.shape().rows; ++row) {
    EXPECT_EQ(first_tokens[static_cast<size_t>(row)], shard.input_ids(row)[0]);
  }
}

TEST_F(BertLoaderTest, TheOrderOfRowsDependsOnSeedEpochAndPlaceOfTheFile) {
  const auto order = [](uint64_t seed, int64_t epoch, int64_t place) {
    const RowOrder row(50, seed, epoch, place, true);
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < 50; ++i) rows.push_back(row(i));
    return rows;
  };
  EXPECT_EQ(order(1, 2, 3), order(1, 2, 3));
  EXPECT_NE(order(1, 2, 3), order(0, 2, 3));
  EXPECT_NE(order(1, 2, 3), order(1, 3, 3));
  EXPECT_NE(order(1, 2, 3), order(1, 2, 4));
}

TEST_F(BertLoaderTest, FilesComeInTheSourcesOrderAndTheirTailsAreCounted) {
  options_.group = 1;
  options_.num_groups = 2;
  BertLoader from = loader();
  EXPECT_EQ(from.files_per_epoch(), 5);
  std::vector<std::string> seen;
  int64_t left_out = 0;
  for (int i = 0; i < 30; ++i) {
    from.next();
    const std::string now = from.file().filename().string();
    if (seen.empty() || seen.back() != now) seen.push_back(now);
  }
  std::vector<std::string> wanted;
  for (int64_t epoch = 0; wanted.size() < seen.size(); ++epoch) {
    const ShardOrder order(files_, epoch, 1, 2);
    for (int64_t f = 0; f < 5 && wanted.size() < seen.size(); ++f) {
      const fs::path& path = order.file(f);
      if (wanted.empty() || wanted.back() != path.filename().string()) {
        wanted.push_back(path.filename().string());
      }
      left_out += reader_->read(path, 30'000).shape().rows % 4;
    }
  }
  EXPECT_EQ(seen, wanted);
  EXPECT_LE(from.rows_left_out(), left_out);
  EXPECT_GT(from.rows_left_out(), 0);
}

TEST_F(BertLoaderTest, AnyPositionGoesOnAsIfNothingHadHappened) {
  BertLoader whole = loader();
  const std::vector<std::string> all = lines(whole, 40);
  BertLoader walked = loader();
  for (int step = 0; step < 40; ++step) {
    const BertPosition stored = BertPosition::from_json(walked.position().to_json());
    BertLoader resumed = loader(stored);
    EXPECT_EQ(lines(resumed, 1).front(), all[static_cast<size_t>(step)]) << step;
    walked.next();
  }
}

TEST_F(BertLoaderTest, PrefetchChangesNothing) {
  BertLoader with = loader();
  options_.prefetch = false;
  BertLoader without = loader();
  EXPECT_EQ(lines(with, 30), lines(without, 30));
}

TEST_F(BertLoaderTest, TheSourcesOwnEpochsEndOneFileEarlier) {
  options_.source_epochs = true;
  EXPECT_EQ(loader().files_per_epoch(), 4);
}

TEST_F(BertLoaderTest, PositionsThatCannotBeAreRefused) {
  EXPECT_HAS(input_error([&] { loader({0, 5, 0}); }), "file number 5 of an epoch of 5");
  EXPECT_HAS(input_error([&] { loader({0, 0, 99}).next(); }), "row 99");
  EXPECT_HAS(input_error([] { BertPosition::from_json({{"epoch", 1}, {"file", 2}}); }),
             "'row'");
  EXPECT_HAS(input_error([] {
               BertPosition::from_json({{"epoch", -1}, {"file", 2}, {"row", 0}});
             }),
             "'epoch'");
}

TEST_F(BertLoaderTest, WhatDoesNotFitTheModelIsRefused) {
  options_.seq_len = 16;
  EXPECT_HAS(input_error([&] { loader().next(); }), "its rows have 8 tokens");
  options_.seq_len = 8;
  options_.vocab_size = 300;
  EXPECT_HAS(input_error([&] {
               BertLoader from = loader();
               for (int i = 0; i < 20; ++i) from.next();
             }),
             "expected 0 to 299");
  options_.vocab_size = 30'000;
  options_.batch_size = 15;
  EXPECT_HAS(input_error([&] { loader().next(); }), "no shard of a whole epoch");
  options_.batch_size = 0;
  EXPECT_THROW(loader(), ConfigError);
}

TEST_F(BertLoaderTest, ADirectoryStandsForItsTrainingShards) {
  dir_.write("s_test_0.hdf5", "");
  dir_.write(".x_training_1.hdf5", "");
  EXPECT_EQ(find_bert_shards({dir_ / ""}).size(), 5U);
  EXPECT_EQ(find_bert_shards({files_[3], files_[1], files_[3]}),
            (std::vector<fs::path>{files_[1], files_[3]}));
  EXPECT_HAS(input_error([&] { find_bert_shards({dir_ / "none"}); }), "no such shard");
  const TestDirectory empty;
  EXPECT_HAS(input_error([&] { find_bert_shards({empty / ""}); }), "holds no shard");
}

}  // namespace
}  // namespace longhaul::data
