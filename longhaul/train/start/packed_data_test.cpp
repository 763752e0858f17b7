#include "longhaul/train/start/packed_data.h"

#include <gtest/gtest.h>

#include <chrono>

#include "longhaul/comm/backend.h"
#include "longhaul/data/bert/example_store.h"
#include "longhaul/data/bert/shards/hdf5_shard.h"
#include "longhaul/data/open_source.h"
#include "longhaul/train/start/staged_inputs.h"
#include "tests/support/bert_examples.h"

namespace longhaul::train {
namespace {

class PackedShards : public ::testing::Test {
 protected:
  PackedShards() {
    if (data::hdf5_version().empty()) return;
    for (const char* name : {"s_training_0.hdf5", "s_training_1.hdf5"}) {
      shards_.push_back(write_test_shard(dir_, name, data::test_shard(5, 16, 3)));
    }
    options_.cache = dir_ / "cache";
    options_.vocab_size = 1000;
    options_.seq_len = 16;
    options_.shards = reader_.get();
  }
  void SetUp() override {
    if (data::hdf5_version().empty()) GTEST_SKIP() << "a build without HDF5";
  }
  fs::path pack(const std::vector<fs::path>& paths) {
    system::Logger quiet;
    return pack_sources(paths, options_, *world_, quiet);
  }
  ptrdiff_t stores() const {
    return std::distance(fs::directory_iterator(options_.cache), {});
  }

  // The reader is made before the tests start any thread.
  static inline std::unique_ptr<data::ShardReader> reader_ =
      std::make_unique<data::ShardReader>();
  data::TestDirectory dir_;
  std::vector<fs::path> shards_;
  PackOptions options_;
  std::shared_ptr<comm::Communicator> world_ = comm::self_world();
};

TEST_F(PackedShards, FilesAndTheirDirectoryNeedPacking) {
  EXPECT_TRUE(needs_packing(shards_[0]));
  EXPECT_TRUE(needs_packing(dir_ / ""));
  const fs::path store = pack(shards_);
  EXPECT_FALSE(needs_packing(store));
  EXPECT_FALSE(needs_packing(options_.cache));
}

TEST_F(PackedShards, ArePackedOnceUntilTheyChange) {
  const fs::path store = pack(shards_);
  EXPECT_EQ(data::open_source(store, 16)->num_sequences(), 10);
  const auto written = fs::last_write_time(store / data::kExampleRows);
  EXPECT_EQ(pack({dir_ / ""}), store);  // the same files
  EXPECT_EQ(fs::last_write_time(store / data::kExampleRows), written);
  EXPECT_EQ(stores(), 1);
  fs::last_write_time(shards_[0],
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_NE(pack(shards_), store);
  options_.vocab_size = 900;
  pack(shards_);
  EXPECT_EQ(stores(), 3);
}

TEST_F(PackedShards, DoNotMixWithOtherFiles) {
  const fs::path ids = dir_.write("ids.jsonl", "{\"input_ids\": [1, 2]}\n");
  try {
    pack({shards_[0], ids});
    ADD_FAILURE() << "no ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_HAS(error.what(), shards_[0].string() + " holds examples and " + ids.string() +
                                 " holds tokens; give each kind an entry of its own");
  }
}

TEST_F(PackedShards, OfADirectoryWithOtherRecordsAreRefusedNamingThem) {
  dir_.write("vocab.txt", "[CLS]\n");
  dir_.write("config.json", "{}");
  EXPECT_TRUE(data::is_example_store(pack({dir_ / ""})));
  dir_.write("ids.jsonl", "{\"input_ids\": [1, 2]}\n");
  EXPECT_HAS(
      data::input_error([&] { pack({dir_ / ""}); }),
      "holds both shards of BERT's examples and ids.jsonl of jsonl; name the files");
}

TEST_F(PackedShards, HaveNoFieldsAndRefuseOne) {
  options_.field = "tokens";
  EXPECT_HAS(data::input_error([&] { pack(shards_); }),
             "field = \"tokens\" names a field of records");
  options_.field = data::kIdsField;
  const fs::path store = pack(shards_);
  EXPECT_HAS(
      data::input_error([&] { data::open_source(store, 16, false, true, "tokens"); }),
      "packed examples has no fields");
}

TEST_F(PackedShards, WhatDoesNotFitLeavesNoStore) {
  options_.seq_len = 32;
  EXPECT_HAS(data::input_error([&] { pack(shards_); }),
             "its rows have 16 tokens, data.seq_len is 32");
  options_.seq_len = 16;
  options_.vocab_size = 50;
  EXPECT_HAS(data::input_error([&] { pack(shards_); }), "expected 0 to 49");
  for (const auto& entry : fs::directory_iterator(options_.cache)) {
    EXPECT_FALSE(data::is_example_store(entry.path())) << entry.path();
  }
}

TEST_F(PackedShards, ARunThatNamesThemNeedsAReader) {
  const auto needs = [](const std::string& path) {
    RunConfig config;
    TrainSource source;
    source.path.entries = {path};
    config.data.train = {source};
    const bool of_train = needs_shard_reader(config);
    config.data.train.clear();
    ValidationSource set;
    set.path.entries = {path};
    config.data.validation = {set};
    EXPECT_EQ(needs_shard_reader(config), of_train);
    return of_train;
  };
  EXPECT_TRUE(needs(shards_[0].string()));
  EXPECT_TRUE(needs((dir_ / "s_*.hdf5").string()));
  EXPECT_TRUE(needs((dir_ / "").string()));
  EXPECT_FALSE(
      needs((dir_ / "none_*.hdf5").string()));  // opening the data refuses it by name
  EXPECT_FALSE(needs(pack(shards_).string()));
  EXPECT_FALSE(needs_shard_reader(RunConfig()));
}

TEST(StagedInputs, FilesOfReadyIdsArePackedFromTheStoreAndOtherAddressesAreCopied) {
  for (const char* entry : {"s3://bucket/ids/*.jsonl.gz", "s3://bucket/a.parquet",
                            "s3://bucket/x.json", "s3://bucket/a.arrow"}) {
    EXPECT_TRUE(is_packed_in_place(entry)) << entry;
    EXPECT_TRUE(needs_packing(entry, "input_ids")) << entry;
  }
  for (const char* entry : {"s3://bucket/store", "s3://bucket/a.txt",
                            "s3://bucket/shard.hdf5", "data/ids.jsonl", "data/store"}) {
    EXPECT_FALSE(is_packed_in_place(entry)) << entry;
  }
  const DataPaths local = {{"data/store", "s3://bucket/ids/*.jsonl"}};
  EXPECT_EQ(local_paths(local, objects::Access()), local.entries);
}

}  // namespace
}  // namespace longhaul::train
