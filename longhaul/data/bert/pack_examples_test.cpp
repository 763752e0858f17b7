#include "longhaul/data/bert/pack_examples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "longhaul/data/bert/build_examples.h"
#include "longhaul/data/bert/example_source.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/order/loader.h"
#include "tests/support/bert_examples.h"

namespace longhaul::data {
namespace {

/// Returns a shard of test_shard with rows of 1 to seq_len tokens and then padding.
/// Masked positions lie before the padding.
BertShard padded_shard(int64_t rows, int64_t seq_len, int32_t first_id) {
  const BertShard full = test_shard(rows, seq_len, 3, first_id);
  std::string bytes = full.bytes();
  auto* const positions = reinterpret_cast<int32_t*>(
      bytes.data() + column_bytes(full.shape(), kColumnForms[0]));
  char* const mask = bytes.data() + 4 * rows * (seq_len + 2 * 3);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t length = 1 + (row + seq_len - 1) % seq_len;  // the first row is full
    for (int64_t i = length; i < seq_len; ++i) mask[row * seq_len + i] = 0;
    for (int64_t p = 0; p < 2; ++p) {
      if (positions[row * 3 + p] >= length) positions[row * 3 + p] = 0;
    }
  }
  return {full.shape(), std::move(bytes)};
}

class PackExamplesTest : public ::testing::Test {
 protected:
  PackExamplesTest() {
    if (hdf5_version().empty()) return;
    for (int i = 0; i < 3; ++i) {
      shards_.push_back(padded_shard(10 + i, 8, 100 * (i + 1)));
      options_.shards.push_back(
          write_test_shard(dir_, fmt::format("s_training_{}.hdf5", i), shards_.back()));
    }
    options_.out = dir_ / "packed";
    options_.vocab_size = 30'000;
    options_.seq_len = 8;
  }
  void SetUp() override {
    if (hdf5_version().empty()) GTEST_SKIP() << "a build without HDF5";
  }
  ExampleStoreInfo pack() { return pack_examples(*reader_, options_); }
  std::string refusal() {
    return input_error([&] { pack(); });
  }
  /// Writes a shard of 8 rows of 8 tokens whose bytes `change` has changed.
  void write_changed(const std::function<void(ShardShape, std::string&)>& change) {
    const BertShard good = test_shard(8, 8, 3);
    std::string bytes = good.bytes();
    change(good.shape(), bytes);
    options_.shards = {
        write_test_shard(dir_, "changed.hdf5", BertShard(good.shape(), bytes))};
  }
  static TokenBatch read_all(const TokenSource& source) {
    TokenBatch batch;
    source.shape(batch, source.num_sequences());
    for (int64_t i = 0; i < source.num_sequences(); ++i) source.read(i, batch, i);
    return batch;
  }

  // The reader is made before any thread of the tests.
  static inline std::unique_ptr<ShardReader> reader_ = std::make_unique<ShardReader>();
  TestDirectory dir_;
  std::vector<BertShard> shards_;
  PackExamplesOptions options_;
};

TEST_F(PackExamplesTest, AShardComesBackAsItWasWritten) {
  const BertShard shard =
      test_shard(5000, 128, 20);  // three chunks; the last chunk is not full
  const fs::path path = write_test_shard(dir_, "big.hdf5", shard);
  const BertShard read = reader_->read(path, 30'000);
  EXPECT_EQ(read.shape(), shard.shape());
  EXPECT_EQ(read.bytes(), shard.bytes());
  EXPECT_EQ(read_shard_unprotected(path).bytes(), shard.bytes());
}

TEST_F(PackExamplesTest, RowsAreTheShardsInTheirOrderInEveryField) {
  for (const int64_t vocab_size : {30'000, 70'000}) {
    options_.vocab_size = vocab_size;
    options_.out = dir_ / fmt::format("packed_{}", vocab_size);
    const ExampleStoreInfo info = pack();
    EXPECT_EQ(info.form.token_bytes, vocab_size == 30'000 ? 2 : 4);
    const auto source = open_source(options_.out, 8);
    ASSERT_EQ(source->num_sequences(), 10 + 11 + 12);
    EXPECT_EQ(source->losses(), (std::vector<std::string>{kMaskedToken, kNextSentence}));
    EXPECT_EQ(source->max_token_id(), 300 + 12 * 8);
    const TokenBatch batch = read_all(*source);
    std::vector<int32_t> tokens, segments, labels, next, ends, positions;
    for (const BertShard& shard : shards_) {
      for (int64_t row = 0; row < shard.shape().rows; ++row) {
        std::ranges::copy(shard.input_ids(row), std::back_inserter(tokens));
        std::ranges::copy(shard.segment_ids(row), std::back_inserter(segments));
        const auto length = std::ranges::count(shard.input_mask(row), 1);
        ends.insert(ends.end(), 8, static_cast<int32_t>(length));
        std::vector<int32_t> of_row(8, kIgnore);
        for (size_t p = 0; p < 3 && shard.masked_lm_positions(row)[p] != 0; ++p) {
          of_row[static_cast<size_t>(shard.masked_lm_positions(row)[p])] =
              shard.masked_lm_ids(row)[p];
        }
        labels.insert(labels.end(), of_row.begin(), of_row.end());
        next.push_back(shard.next_sentence_label(row));
        for (int32_t i = 0; i < 8; ++i) positions.push_back(i);
      }
    }
    EXPECT_EQ(batch.tokens, tokens);
    EXPECT_EQ(batch.segments, segments);
    ASSERT_EQ(batch.targets.size(), 2U);
    EXPECT_EQ(batch.targets[0], labels);
    EXPECT_EQ(batch.targets[1], next);
    EXPECT_EQ(batch.document_end, ends);
    EXPECT_EQ(batch.document_start, std::vector<int32_t>(tokens.size(), 0));
    EXPECT_EQ(batch.positions, positions);
    EXPECT_EQ(batch.num_targets(0), 18);
    EXPECT_EQ(batch.num_targets(1), 33);
  }
}

TEST_F(PackExamplesTest, TheSameRowsAreReadAfterAResumeOnOtherRanks) {
  pack();
  const std::shared_ptr<const TokenSource> source = example_source(options_.out, 8);
  const auto step_of = [&](int64_t ranks, const Cursor& from, Cursor* after) {
    std::map<int64_t, TokenBatch> rows;  // by place in the step
    uint64_t content = 0;                // modulo 2^64
    std::vector<int64_t> targets(2, 0);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      LoaderOptions options;
      options.seed = 4;
      options.global_size = 12;
      options.micro_size = 2;
      options.data_rank = rank;
      options.data_size = ranks;
      Loader loader({{source, 1.0, "examples", {}}}, options, from);
      StepBatch& step = loader.next();
      content += static_cast<uint64_t>(step.content_hash);
      for (size_t t = 0; t < 2; ++t) targets[t] += step.num_targets.at(t);
      for (size_t m = 0; m < step.micro_batches.size(); ++m) {
        rows[static_cast<int64_t>(m) * ranks + rank] = step.micro_batches[m];
      }
      *after = Cursor::from_json(loader.cursor().to_json());
    }
    std::vector<std::vector<int32_t>> all(5);
    for (const auto& [place, batch] : rows) {
      const auto add = [&](size_t i, const std::vector<int32_t>& values) {
        all[i].insert(all[i].end(), values.begin(), values.end());
      };
      add(0, batch.tokens);
      add(1, batch.targets[0]);
      add(2, batch.targets[1]);
      add(3, batch.segments);
      add(4, batch.document_end);
    }
    return std::tuple(all, content, targets);
  };
  // 7 steps of 12 sequences from 33 rows cross the ends of two epochs.
  const std::vector<int64_t> changing = {1, 3, 2, 6, 1, 2, 3};
  Cursor one, other;
  for (const int64_t ranks : changing) {
    const Cursor from_one = one, from_other = other;
    EXPECT_EQ(step_of(1, from_one, &one), step_of(ranks, from_other, &other)) << ranks;
  }
  EXPECT_EQ(one.sequences(), 7 * 12);
}

TEST_F(PackExamplesTest, AnEpochHasEveryRowOnceInRandomOrder) {
  pack();
  LoaderOptions options;
  options.global_size = 33;
  options.micro_size = 33;
  Loader loader({{example_source(options_.out, 8), 1.0, "examples", {}}}, options);
  const TokenBatch all = read_all(*example_source(options_.out, 8));
  std::vector<int32_t> wanted, found;
  const TokenBatch& batch = loader.next().micro_batches[0];
  for (size_t row = 0; row < 33; ++row) {
    wanted.push_back(all.tokens[row * 8]);
    found.push_back(batch.tokens[row * 8]);
  }
  EXPECT_FALSE(std::ranges::is_sorted(found));
  std::ranges::sort(found);
  EXPECT_EQ(found, wanted);
}

TEST_F(PackExamplesTest, TextIsBuiltPackedAndReadWithItsTokenizer) {
  std::string lines;
  for (int document = 0; document < 30; ++document) {
    std::string text;
    for (int word = 0; word < 60; ++word) {
      text += fmt::format("w{}{}", (document * 7 + word * word) % kTestWords,
                          word % 9 == 8 ? "\\n" : " ");
    }
    lines += "{\"text\": \"" + text + "\"}\n";
  }
  const auto tokenizer = test_bert_tokenizer(dir_);
  BuildExamplesOptions build;
  build.inputs.arguments = {dir_.write("corpus.jsonl", lines).string()};
  build.out = dir_ / "built";
  build.examples.seq_len = 32;
  build.examples.mask.max_predictions = 5;
  build.duplicates = 2;
  build.shards = 3;
  build.threads = 2;
  const BertRecord record = build_examples(*tokenizer, build);
  EXPECT_TRUE(names_bert_shards(build.out));
  options_.shards = find_bert_shards({build.out});
  options_.seq_len = 32;
  options_.vocab_size = tokenizer->vocab_size();
  const ExampleStoreInfo info = pack();
  EXPECT_EQ(info.rows, record.counts.examples);
  EXPECT_EQ(info.origins.size(), 3U);
  const auto source = open_source(options_.out, 32);
  EXPECT_EQ(source->tokenizer_fingerprint(), tokenizer->fingerprint());
  const TokenBatch batch = read_all(*source);
  const MaskCounts& masks = record.counts.masks;
  EXPECT_EQ(batch.num_targets(0), masks.masked + masks.kept + masks.replaced);
  EXPECT_EQ(std::accumulate(batch.targets[1].begin(), batch.targets[1].end(), int64_t{0}),
            record.counts.random_next);
  int64_t tokens = 0;
  for (int64_t row = 0; row < info.rows; ++row) {
    const auto begin = static_cast<size_t>(row * 32);
    const auto length = static_cast<size_t>(batch.document_end[begin]);
    tokens += batch.document_end[begin];
    EXPECT_EQ(batch.tokens[begin], 2);               // [CLS]
    EXPECT_EQ(batch.tokens[begin + length - 1], 3);  // [SEP]
    EXPECT_EQ(batch.segments[begin + length - 1], 1);
  }
  EXPECT_EQ(tokens, record.counts.tokens);
}

TEST_F(PackExamplesTest, WhatIsThereIsLeftAndWhatWasKilledIsThrownAway) {
  fs::create_directories(dir_ / "packed.building");
  dir_.write("packed.building/rows.bin", "a half of it");
  const ExampleStoreInfo info = pack();
  EXPECT_EQ(dir_.listing(),
            "packed s_training_0.hdf5 s_training_1.hdf5 s_training_2.hdf5");
  std::vector<int64_t> done;
  options_.progress = [&](int64_t shards, int64_t) { done.push_back(shards); };
  EXPECT_EQ(pack().fingerprint(), info.fingerprint());
  EXPECT_TRUE(done.empty());
  options_.out = dir_ / "again";
  EXPECT_EQ(pack().fingerprint(), info.fingerprint());
  EXPECT_EQ(done, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(read_text(dir_ / "again" / kExampleRows),
            read_text(dir_ / "packed" / kExampleRows));
}

TEST_F(PackExamplesTest, TheIdentityOfShardsChangesWithPathSizeAndTime) {
  const std::string before = shards_identity(options_.shards);
  EXPECT_EQ(shards_identity(options_.shards), before);
  fs::last_write_time(options_.shards[1],
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_NE(shards_identity(options_.shards), before);
  EXPECT_NE(shards_identity({options_.shards[0]}), shards_identity({options_.shards[2]}));
}

TEST_F(PackExamplesTest, WhatDoesNotFitTheRunIsRefusedWithBothNumbers) {
  options_.seq_len = 16;
  EXPECT_HAS(refusal(), "its rows have 8 tokens, data.seq_len is 16");
  options_.seq_len = 8;
  options_.vocab_size = 300;
  EXPECT_HAS(refusal(),
             "s_training_2.hdf5: row 0: input_ids[0] is 300, expected 0 to 299");
  options_.vocab_size = 30'000;
  options_.shards.push_back(
      write_test_shard(dir_, "z_training_9.hdf5", test_shard(4, 8, 2)));
  EXPECT_HAS(refusal(),
             "z_training_9.hdf5: its rows have 2 masked positions, but rows of the "
             "shards before it have 3");
  options_.shards.pop_back();
  pack();
  EXPECT_HAS(input_error([&] { open_source(options_.out, 512); }),
             "its rows have 8 tokens, data.seq_len is 512");
  EXPECT_HAS(input_error([&] { open_source(options_.out, 8, true); }),
             "data.document_mask = false");
  EXPECT_HAS(input_error([&] { open_source(options_.out, 8)->limit_ids(395); }),
             "holds token id 395, but the model's vocabulary has 395 ids");
}

TEST_F(PackExamplesTest, MasksThatAreNotOnesThenZerosAreRefusedWithFileAndRow) {
  const auto mask_at = [](ShardShape shape, int64_t row, int64_t i) {
    return static_cast<size_t>(4 * shape.rows * (shape.seq_len + 2 * shape.predictions) +
                               row * shape.seq_len + i);
  };
  write_changed([&](ShardShape s, std::string& bytes) { bytes[mask_at(s, 5, 3)] = 0; });
  EXPECT_HAS(refusal(),
             "changed.hdf5: row 5: input_mask[4] is 1 after the padding, which "
             "begins at 3");
  write_changed([&](ShardShape s, std::string& bytes) { bytes[mask_at(s, 6, 0)] = 0; });
  EXPECT_HAS(refusal(), "row 6: input_mask leaves out the first token");
  write_changed([&](ShardShape s, std::string& bytes) {
    for (int64_t i = 3; i < 8; ++i) bytes[mask_at(s, 4, i)] = 0;
  });
  EXPECT_HAS(refusal(),
             "row 4: masked_lm_positions[0] is 5, after the end of the row's 3 tokens");
}

TEST_F(PackExamplesTest, SourcesWithOtherTargetsDoNotMix) {
  pack();
  const std::shared_ptr<const TokenSource> examples = example_source(options_.out, 8);
  const std::shared_ptr<const TokenSource> tokens = synthetic_source(10, 8, 100, 1);
  LoaderOptions options;
  options.global_size = 2;
  options.micro_size = 1;
  const auto message = [&](std::vector<WeightedSource> sources) -> std::string {
    try {
      const Loader loader(std::move(sources), options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_HAS(
      message({{examples, 1.0, "bert", {}}, {tokens, 1.0, "web", {}}}),
      "bert has targets for masked_token and next_sentence, but web has targets for "
      "next_token");
  std::vector<std::unique_ptr<TokenSource>> parts;
  parts.push_back(synthetic_source(10, 8, 100, 1));
  parts.push_back(example_source(options_.out, 8));
  EXPECT_HAS(input_error([&] { concatenated_source(std::move(parts)); }),
             "give each kind an entry of its own");
  std::vector<std::unique_ptr<TokenSource>> two;
  two.push_back(example_source(options_.out, 8));
  two.push_back(example_source(options_.out, 8));
  const auto both = concatenated_source(std::move(two));
  const TokenBatch batch = read_all(*both);
  EXPECT_EQ(batch.num_targets(1), 66);
  EXPECT_EQ(batch.targets[1][0], batch.targets[1][33]);
}

TEST_F(PackExamplesTest, ADirectoryStandsForItsTrainingShards) {
  dir_.write("s_test_0.hdf5", "");
  dir_.write(".x_training_1.hdf5", "");
  const std::vector<fs::path>& files = options_.shards;
  EXPECT_EQ(find_bert_shards({dir_ / ""}), files);
  EXPECT_EQ(find_bert_shards({files[2], files[1], files[2]}),
            (std::vector<fs::path>{files[1], files[2]}));
  EXPECT_HAS(input_error([&] { find_bert_shards({dir_ / "none"}); }), "no such shard");
  const TestDirectory empty;
  EXPECT_HAS(input_error([&] { find_bert_shards({empty / ""}); }), "holds no file");
  EXPECT_TRUE(names_bert_shards(dir_ / ""));
  EXPECT_TRUE(names_bert_shards(files[0]));
  EXPECT_FALSE(names_bert_shards(empty / ""));
  EXPECT_FALSE(names_bert_shards(dir_ / "absent.hdf5"));
  EXPECT_FALSE(names_bert_shards(dir_.write("ids.jsonl", "{}")));
}

}  // namespace
}  // namespace longhaul::data
