#include "longhaul/data/bert/masking.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/bert_examples.h"

namespace longhaul::data {
namespace {

class Masking : public ::testing::Test {
 protected:
  BertVocabulary vocabulary_ = BertVocabulary::of(*test_bert_tokenizer(dir_), true);
  TestDirectory& dir() { return dir_; }

 private:
  static inline TestDirectory dir_;
};

TEST_F(Masking, SharesAreThoseOfTheRecipe) {
  MaskCounts counts;
  std::vector<int64_t> at(128, 0);
  std::set<int32_t> replacements;
  constexpr int kRows = 4000;
  for (int i = 0; i < kRows; ++i) {
    std::vector<int32_t> row(128, 100);
    row.front() = vocabulary_.cls;
    row[60] = row.back() = vocabulary_.sep;
    Draws draws(1, "test", 0, i);
    const auto masked = mask_tokens(vocabulary_, {}, draws, row, counts);
    ASSERT_EQ(masked.size(), 19U);  // 15 % of 128, rounded
    for (size_t k = 0; k < masked.size(); ++k) {
      ASSERT_EQ(masked[k].id, 100);
      ASSERT_LT(k == 0 ? 0 : masked[k - 1].position, masked[k].position);
      ++at[static_cast<size_t>(masked[k].position)];
      const int32_t now = row[static_cast<size_t>(masked[k].position)];
      if (now != 100 && now != vocabulary_.mask) replacements.insert(now);
    }
  }
  EXPECT_EQ(at[0] + at[60] + at[127], 0) << "a special token was chosen";
  const double total = kRows * 19.0;
  // The bounds are four standard deviations of a binomial distribution.
  EXPECT_NEAR(static_cast<double>(counts.masked) / total, 0.8, 0.006);
  EXPECT_NEAR(static_cast<double>(counts.kept) / total, 0.1, 0.0045);
  EXPECT_NEAR(static_cast<double>(counts.replaced) / total, 0.1, 0.0045);
  for (size_t i = 1; i < 127; ++i) {
    if (i == 60) continue;
    EXPECT_NEAR(static_cast<double>(at[i]), total / 125.0, 110.0) << i;
  }
  EXPECT_GT(replacements.size(), 390U);
  for (const int32_t id : replacements) EXPECT_GE(id, 5) << "a special token stands in";
}

TEST_F(Masking, WholeWordsAreMaskedWholeOrNotAtAll) {
  const auto piece = static_cast<int32_t>(5 + kTestWords);
  MaskOptions options;
  options.whole_words = true;
  int64_t joined = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<int32_t> row = {vocabulary_.cls};
    while (row.size() < 100) row.insert(row.end(), {10, piece, 11, 12, piece, piece});
    const std::vector<int32_t> before = row;
    MaskCounts counts;
    Draws draws(2, "test", 0, i);
    const auto masked = mask_tokens(vocabulary_, options, draws, row, counts);
    std::set<int32_t> chosen;
    for (const MaskedToken& token : masked) chosen.insert(token.position);
    ASSERT_LE(masked.size(), 15U);
    ASSERT_GE(masked.size(), 13U);  // a word that does not fit is skipped
    for (int32_t place = 1; place + 1 < static_cast<int32_t>(row.size()); ++place) {
      if (before[static_cast<size_t>(place) + 1] != piece) continue;
      ASSERT_EQ(chosen.count(place), chosen.count(place + 1)) << place;
      joined += static_cast<int64_t>(chosen.count(place));
    }
  }
  EXPECT_GT(joined, 1000);
}

TEST_F(Masking, NoMoreThanMaxPredictionsAndAtLeastOne) {
  MaskCounts counts;
  MaskOptions options;
  options.max_predictions = 3;
  std::vector<int32_t> row(100, 50);
  Draws draws(3, "test", 0, 0);
  EXPECT_EQ(mask_tokens(vocabulary_, options, draws, row, counts).size(), 3U);
  std::vector<int32_t> tiny = {vocabulary_.cls, 50, vocabulary_.sep, 51, vocabulary_.sep};
  EXPECT_EQ(mask_tokens(vocabulary_, options, draws, tiny, counts).size(), 1U);
}

TEST_F(Masking, ATokenizerWithoutMaskIsRefused) {
  Json json = read_json(dir() / "tokenizer.json");
  json["model"]["vocab"].erase("[MASK]");
  json["model"]["vocab"]["w_more"] = 4;
  json["added_tokens"].erase(4);
  const auto tokenizer =
      tokenizer::Tokenizer::load(dir().write("other.json", json.dump()));
  EXPECT_HAS(input_error([&] { BertVocabulary::of(*tokenizer, false); }), "[MASK]");
}

TEST(Draws, AreUniformAndDependOnEachOfTheirNames) {
  std::vector<int64_t> counts(7, 0);
  Draws draws(5, "test", 3, 9);
  for (int i = 0; i < 70'000; ++i) ++counts[static_cast<size_t>(draws.below(7))];
  for (const int64_t count : counts) EXPECT_NEAR(static_cast<double>(count), 1e4, 400);
  const uint32_t first = Draws(5, "test", 3, 9).next();
  EXPECT_EQ(first, Draws(5, "test", 3, 9).next());
  EXPECT_NE(first, Draws(6, "test", 3, 9).next());
  EXPECT_NE(first, Draws(5, "other", 3, 9).next());
  EXPECT_NE(first, Draws(5, "test", 4, 9).next());
  EXPECT_NE(first, Draws(5, "test", 3, 10).next());
}

}  // namespace
}  // namespace longhaul::data
