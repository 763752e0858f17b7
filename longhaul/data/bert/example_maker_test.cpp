#include "longhaul/data/bert/example_maker.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/bert_examples.h"

namespace longhaul::data {
namespace {

constexpr int64_t kDocuments = 60;

/// A fixture with documents in which no token occurs twice: each token id belongs to one
/// document, sentence and place.
class ExampleMakerTest : public ::testing::Test {
 protected:
  ExampleMakerTest() {
    SentenceList list;
    Draws draws(1, "texts", 0, 0);
    tokenizer::TokenId next = 5;
    for (int64_t d = 0; d < kDocuments; ++d) {
      const int64_t sentences = draws.between(1, 30);
      list.document_sentences.push_back(static_cast<uint32_t>(sentences));
      for (int64_t s = 0; s < sentences; ++s) {
        const int64_t tokens = draws.between(1, 40);
        list.sentence_tokens.push_back(static_cast<uint32_t>(tokens));
        for (int64_t t = 0; t < tokens; ++t) {
          document_of_.push_back(d);
          list.tokens.push_back(next++);
        }
      }
    }
    vocabulary_.pad = 0;
    vocabulary_.cls = 2;
    vocabulary_.sep = 3;
    vocabulary_.mask = 4;
    vocabulary_.special.assign(next, 0);
    std::fill_n(vocabulary_.special.begin(), 5, 1);
    vocabulary_.continues.assign(next, 0);
    vocabulary_.ordinary = {6, 7, 8};
    SpoolWriter writer(dir_ / "", int64_t{next});
    writer.add(list);
    writer.finish();
    spool_ = std::make_unique<DocumentSpool>(dir_ / "", int64_t{next}, writer.counts());
    tokens_ = static_cast<int64_t>(next) - 5;
  }

  ExampleRows all(int64_t pass, int64_t seq_len) const {
    options_.seq_len = seq_len;
    const ExampleMaker maker(*spool_, vocabulary_, options_);
    ExampleRows rows(seq_len, options_.mask.max_predictions);
    for (int64_t d = 0; d < kDocuments; ++d) maker.make(pass, d, rows);
    return rows;
  }
  static BertShard in_order(const ExampleRows& rows) {
    std::vector<int64_t> order(static_cast<size_t>(rows.size()));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    return rows.shard(order);
  }
  int64_t document(int32_t id) const { return document_of_[static_cast<size_t>(id - 5)]; }

  TestDirectory dir_;
  BertVocabulary vocabulary_;
  std::vector<int64_t> document_of_;
  std::unique_ptr<DocumentSpool> spool_;
  int64_t tokens_ = 0;
  mutable ExampleOptions options_;
};

/// Returns a row as it was before masking, and checks the row's form.
std::vector<int32_t> unmasked(const BertShard& shard, int64_t row) {
  std::vector<int32_t> ids(shard.input_ids(row).begin(), shard.input_ids(row).end());
  const auto positions = shard.masked_lm_positions(row);
  const auto labels = shard.masked_lm_ids(row);
  for (size_t i = 0; i < positions.size() && positions[i] != 0; ++i) {
    ids[static_cast<size_t>(positions[i])] = labels[i];
  }
  const auto mask = shard.input_mask(row);
  const auto length = std::ranges::count(mask, 1);
  EXPECT_TRUE(std::all_of(mask.begin(), mask.begin() + length,
                          [](int8_t value) { return value == 1; }));
  EXPECT_TRUE(
      std::all_of(ids.begin() + length, ids.end(), [](int32_t id) { return id == 0; }));
  ids.resize(static_cast<size_t>(length));
  return ids;
}

TEST_F(ExampleMakerTest, EveryExampleIsAPairOfStretchesOfItsDocuments) {
  const ExampleRows rows = all(0, 64);
  const BertShard shard = in_order(rows);
  check_shard(shard, 5 + tokens_, "rows");
  int64_t random_next = 0;
  for (int64_t row = 0; row < shard.shape().rows; ++row) {
    const std::vector<int32_t> ids = unmasked(shard, row);
    ASSERT_EQ(ids.front(), 2);
    ASSERT_EQ(ids.back(), 3);
    const auto middle = std::find(ids.begin() + 1, ids.end() - 1, 3);
    ASSERT_NE(middle, ids.end() - 1);
    const std::vector<int32_t> first(ids.begin() + 1, middle);
    const std::vector<int32_t> second(middle + 1, ids.end() - 1);
    ASSERT_FALSE(first.empty());
    ASSERT_FALSE(second.empty());
    for (size_t i = 1; i < first.size(); ++i) ASSERT_EQ(first[i], first[i - 1] + 1);
    for (size_t i = 1; i < second.size(); ++i) ASSERT_EQ(second[i], second[i - 1] + 1);
    const auto first_tokens = static_cast<size_t>(middle - ids.begin()) + 1;
    for (size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(shard.segment_ids(row)[i], i >= first_tokens && i < ids.size() ? 1 : 0);
    }
    ASSERT_EQ(document(first.front()), document(first.back()));
    ASSERT_EQ(document(second.front()), document(second.back()));
    const bool random = shard.next_sentence_label(row) == 1;
    ASSERT_EQ(random, document(first.front()) != document(second.front()));
    ASSERT_TRUE(random || second.front() > first.back());
    random_next += random ? 1 : 0;
  }
  EXPECT_EQ(rows.counts.random_next, random_next);
  EXPECT_EQ(rows.counts.examples, shard.shape().rows);
}

TEST_F(ExampleMakerTest, NoTokenIsLostButWhatThePairsHadToLeaveOut) {
  options_.short_share = 0.0;
  const ExampleRows rows = all(0, 512);
  const BertShard shard = in_order(rows);
  std::vector<bool> seen(static_cast<size_t>(tokens_), false);
  for (int64_t row = 0; row < shard.shape().rows; ++row) {
    for (const int32_t id : unmasked(shard, row)) {
      if (id >= 5) seen[static_cast<size_t>(id - 5)] = true;
    }
  }
  const auto missing = std::ranges::count(seen, false);
  EXPECT_LE(missing, rows.counts.cut_tokens);
  EXPECT_LT(static_cast<double>(missing), 0.05 * static_cast<double>(tokens_));
}

TEST_F(ExampleMakerTest, HalfOfThePairsAreRandomWhereADocumentHasASecondSentence) {
  int64_t examples = 0;
  int64_t random_next = 0;
  for (int64_t pass = 0; pass < 40; ++pass) {
    const ExampleRows rows = all(pass, 32);
    examples += rows.counts.examples;
    random_next += rows.counts.random_next;
  }
  // A pair of one long sentence always gets a random second text, so the share is a
  // little more than half.
  const double share = static_cast<double>(random_next) / static_cast<double>(examples);
  EXPECT_GT(examples, 20'000);
  EXPECT_GT(share, 0.5);
  EXPECT_LT(share, 0.75);
}

TEST_F(ExampleMakerTest, SumsAreThoseOfTheRows) {
  const ExampleRows rows = all(1, 48);
  const BertShard shard = in_order(rows);
  int64_t tokens = 0;
  int64_t predictions = 0;
  int64_t masks = 0;
  for (int64_t row = 0; row < shard.shape().rows; ++row) {
    tokens += std::ranges::count(shard.input_mask(row), 1);
    predictions += std::ranges::count_if(shard.masked_lm_positions(row),
                                         [](int32_t position) { return position > 0; });
    masks += std::ranges::count(shard.input_ids(row), 4);
  }
  EXPECT_EQ(rows.counts.tokens, tokens);
  EXPECT_EQ(rows.counts.masks.masked, masks);
  EXPECT_EQ(
      rows.counts.masks.masked + rows.counts.masks.kept + rows.counts.masks.replaced,
      predictions);
  const Json counts = rows.counts.to_json();
  EXPECT_EQ(ExampleCounts::from_json(JsonFields(counts, "data", "f")).to_json(), counts);
}

TEST_F(ExampleMakerTest, ADocumentsExamplesDependOnPassAndDocumentOnly) {
  options_.seq_len = 40;
  const ExampleMaker maker(*spool_, vocabulary_, options_);
  const auto made = [&](int64_t pass, int64_t document, int64_t before) {
    ExampleRows other(40, 20);
    maker.make(pass, before, other);
    ExampleRows rows(40, 20);
    maker.make(pass, document, rows);
    return in_order(rows).bytes();
  };
  EXPECT_EQ(made(0, 7, 1), made(0, 7, 2));
  EXPECT_NE(made(0, 7, 1), made(1, 7, 1));
}

TEST_F(ExampleMakerTest, OneDocumentAloneIsRefused) {
  SpoolWriter writer(dir_ / "", 10);
  writer.add({{5, 6}, {2}, {1}});
  writer.finish();
  const DocumentSpool one(dir_ / "", 10, writer.counts());
  EXPECT_HAS(input_error([&] { ExampleMaker(one, vocabulary_, options_); }),
             "one document");
}

TEST_F(ExampleMakerTest, ASpoolOfAnotherSizeIsRefused) {
  SpoolCounts counts = spool_->counts();
  ++counts.tokens;
  EXPECT_HAS(input_error([&] { DocumentSpool(dir_ / "", 5 + tokens_, counts); }),
             "spool_tokens.bin");
}

}  // namespace
}  // namespace longhaul::data
