#include "longhaul/data/store/whole_rows_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "longhaul/data/open_source.h"
#include "longhaul/data/sources/referenced_source.h"
#include "tests/support/store_build.h"

namespace longhaul::data {
namespace {

std::vector<int32_t> random_lengths(uint64_t seed, size_t count, int32_t longest) {
  std::mt19937_64 draw(seed);
  std::vector<int32_t> lengths(count);
  for (int32_t& length : lengths) {
    // Half of the items are short, as in real sets.
    const int32_t most = draw() % 2 == 0 ? longest : std::max(1, longest / 8);
    length = 1 + static_cast<int32_t>(draw() % static_cast<uint64_t>(most));
  }
  return lengths;
}

size_t first_fit_decreasing(std::vector<int32_t> lengths, int64_t room) {
  std::ranges::sort(lengths, std::greater{});
  std::vector<int64_t> left;
  for (const int32_t length : lengths) {
    const auto fits = std::ranges::find_if(left, [&](int64_t l) { return l >= length; });
    if (fits == left.end()) {
      left.push_back(room - length);
    } else {
      *fits -= length;
    }
  }
  return left.size();
}

TEST(BestFitRows, TakeNoMoreRowsThanFirstFitDecreasingAndNeverOverfillOne) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto longest = static_cast<int32_t>(20 + 13 * seed);
    const int64_t room = longest + static_cast<int64_t>(seed % 7);
    const auto lengths = random_lengths(seed, 400, longest);
    const auto rows = best_fit_rows(lengths, room);
    std::vector<int64_t> used(1 + *std::ranges::max_element(rows), 0);
    for (size_t i = 0; i < rows.size(); ++i) used[rows[i]] += lengths[i];
    EXPECT_LE(*std::ranges::max_element(used), room) << seed;
    EXPECT_GT(*std::ranges::min_element(used), 0) << seed << ": an empty row";
    EXPECT_LE(used.size(), first_fit_decreasing(lengths, room)) << seed;
  }
}

TEST(BestFitRows, PutAnItemWhereTheLeastRoomRemainsAndNumberRowsByTheirFirstItem) {
  // 7 and 6 begin rows of 10; 3 fits 7's row exactly; 4 fits 6's row exactly; 2 and 1
  // then need a third row. 0 is left out.
  EXPECT_EQ(best_fit_rows(std::vector<int32_t>{2, 6, 0, 7, 4, 3, 1}, 10),
            (std::vector<uint32_t>{0, 1, kNoRow, 2, 1, 2, 0}));
  EXPECT_EQ(best_fit_rows(std::vector<int32_t>{5, 5, 5, 5}, 5),
            (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_TRUE(best_fit_rows({}, 5).empty());
}

class WholeRowsTest : public BuildTest {
 protected:
  /// Builds a store of texts without special tokens.
  void build(const std::vector<std::string>& of, const std::string& out = "store") {
    std::string corpus;
    for (const std::string& text : of) corpus += line(text);
    BuildOptions wanted = options(corpus, out);
    wanted.special = SpecialPolicy::None;
    wanted.part_bytes = 1000;  // rows take documents of several shards
    wanted.force = true;
    build_store(&tokenizer, wanted);
  }
  void build_ids(const std::string& corpus) {
    BuildOptions wanted = options(corpus);
    wanted.inputs.field = "input_ids";
    wanted.vocab_size = 300;
    build_store(nullptr, wanted);
  }
  /// Makes the store one of pairs.
  void make_pairs() const {
    StoreInfo info = read_store_info(dir / "store");
    info.kind = "pairs";
    dir.write("store/store.json", store_info_text(info));
  }
  std::unique_ptr<TokenSource> rows(int64_t seq_len, bool cut = false,
                                    const std::string& out = "store",
                                    bool verify = true) const {
    return open_whole_rows(dir / out, {seq_len, cut, dir / "cache"}, verify);
  }
  /// Returns the documents of all rows as texts, with '|' between rows.
  static std::string shown(const TokenSource& source) {
    std::string text;
    for (int64_t index = 0; index < source.num_sequences(); ++index) {
      const TokenBatch batch = row_of(source, index);
      text += index == 0 ? "" : "|";
      for (int64_t i = 0; i < batch.num_real(); ++i) {
        const auto at = static_cast<size_t>(i);
        if (i > 0 && batch.document_start[at] == i) text += ' ';
        text += static_cast<char>(batch.tokens[at]);
      }
    }
    return text;
  }
  static TokenBatch row_of(const TokenSource& source, int64_t index) {
    TokenBatch batch;
    source.shape(batch, 1);
    source.read(index, batch, 0);
    return batch;
  }
  fs::path plan() const {
    std::vector<fs::path> plans = paths_in(dir / "cache");
    EXPECT_EQ(plans.size(), 1U);
    return plans.at(0);
  }
};

TEST_F(WholeRowsTest, HoldEachDocumentOnceAndWhole) {
  std::vector<std::string> documents;
  for (size_t i = 0; i < 300; ++i) {
    documents.push_back(std::string(2 + i * i % 39, static_cast<char>('a' + i % 26)));
  }
  build(documents);
  const auto source = rows(40);
  std::string all = shown(*source);
  std::ranges::replace(all, '|', ' ');
  std::vector<std::string> found;
  for (size_t begin = 0; begin <= all.size();) {
    const size_t end = std::min(all.find(' ', begin), all.size());
    found.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  std::ranges::sort(found);
  std::ranges::sort(documents);
  EXPECT_EQ(found, documents);
}

TEST_F(WholeRowsTest, BeginPositionsAndAttentionAnewAndPadTheirEnd) {
  build({"abc", "defg", "hi"});
  const auto source = rows(8);
  ASSERT_EQ(shown(*source), "abc defg|hi");
  const TokenBatch first = row_of(*source, 0);
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{'a', 'b', 'c', 'd', 'e', 'f', 'g', 0}));
  EXPECT_EQ(first.targets[0],
            (std::vector<int32_t>{'b', 'c', kIgnore, 'e', 'f', 'g', kIgnore, kIgnore}));
  EXPECT_EQ(first.positions, (std::vector<int32_t>{0, 1, 2, 0, 1, 2, 3, 0}));
  EXPECT_EQ(first.document_start, (std::vector<int32_t>{0, 0, 0, 3, 3, 3, 3, 7}));
  EXPECT_EQ(first.real, (std::vector<int32_t>{1, 1, 1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(first.num_targets(0), 5);
  EXPECT_EQ(row_of(*source, 1).num_real(), 2);
  EXPECT_HAS(source->describe(),
             "3 documents whole, 9 tokens, in 2 rows of 8, of whose positions 43.75% are "
             "padding");
}

TEST_F(WholeRowsTest, TakeTargetsFromTheStoreButNeverADocumentsFirstToken) {
  build_ids(R"({"input_ids":[1,2,3,4],"labels":[1,-100,3,4]})"
            "\n"
            R"({"input_ids":[5,6,7],"labels":[5,-100,-100]})"
            "\n"
            R"({"input_ids":[8]})"
            "\n"
            R"({"input_ids":[9,10],"labels":[-100,10]})"
            "\n");
  const auto source = rows(6);
  ASSERT_EQ(source->num_sequences(), 1);
  const TokenBatch row = row_of(*source, 0);
  EXPECT_EQ(row.tokens, (std::vector<int32_t>{1, 2, 3, 4, 9, 10}));
  EXPECT_EQ(row.targets[0], (std::vector<int32_t>{kIgnore, 3, 4, kIgnore, 10, kIgnore}));
  EXPECT_TRUE(row.real.empty()) << "the row is full";
  EXPECT_HAS(source->describe(),
             "2 documents left out without a target (the first: document 1)");
}

TEST_F(WholeRowsTest, LeaveOutOrCutWhatIsLongerThanARowAndCountIt) {
  build({"ab", "cdefghi", "jkl", "mnopqr", "stuvw"});
  const auto without = rows(5);
  EXPECT_EQ(shown(*without), "ab jkl|stuvw");
  EXPECT_HAS(without->describe(),
             "2 documents left out as longer than a row (the first: document 1)");
  const auto cut = rows(5, true);
  EXPECT_EQ(shown(*cut), "ab jkl|cdefg|mnopq|stuvw");
  EXPECT_HAS(cut->describe(),
             "2 documents cut by 3 tokens in all (the first: document 1)");
  EXPECT_EQ(row_of(*cut, 1).targets[0].back(), kIgnore) << "what was cut is no target";
  EXPECT_EQ(cut->max_token_id(), without->max_token_id());
  EXPECT_HAS(
      input_error([&] { rows(1); }),
      "no document can stand in a row of 1 tokens; 5 documents left out as longer");
}

TEST_F(WholeRowsTest, KeepPairsTogetherAndCutEachSideOfOneThatDoesNotFit) {
  build({"ab", "cde", "fghijk", "lm", "nopqrst", "uvwxyz", "AB", "CD"});
  make_pairs();
  const auto without = rows(10);
  EXPECT_EQ(shown(*without), "ab cde AB CD|fghijk lm");
  EXPECT_HAS(without->describe(),
             "1 pair left out as longer than a row (the first: pair 2)");
  EXPECT_EQ(shown(*rows(10, true)), "ab cde AB CD|fghijk lm|nopqr uvwxy");
}

TEST_F(WholeRowsTest, TellWhichPairAndSideEachPositionBelongsTo) {
  build({"ab", "cde", "fghi", "jkl", "AB", "CD"});
  make_pairs();
  const auto source = rows(10);
  ASSERT_EQ(shown(*source), "ab cde AB CD|fghi jkl");
  EXPECT_EQ(source->losses(), (std::vector<std::string>{kPreference, kChosenToken}));
  EXPECT_EQ(source->num_pairs(), 3);
  TokenBatch batch;
  source->shape(batch, 2);
  source->read(0, batch, 1);
  source->read(1, batch, 0);
  EXPECT_EQ(batch.sides, (std::vector<int32_t>{0, 0, 0, 0, 1, 1, 1, -1, -1, -1,  //
                                               0, 0, 1, 1, 1, 2, 2, 3,  3,  -1}));
  ASSERT_EQ(batch.pairs[1].size(), 2U);
  EXPECT_EQ(batch.pairs[0].at(0).number, 1);
  EXPECT_EQ(batch.pairs[1][0].number, 0);
  EXPECT_EQ(batch.pairs[1][1].number, 2);
  EXPECT_EQ(batch.num_targets(0), 3);
  const int32_t no = kIgnore;
  EXPECT_EQ(batch.targets[1],
            (std::vector<int32_t>{'g', 'h', 'i', no, no, no,  no, no, no, no,  //
                                  'b', no,  no,  no, no, 'B', no, no, no, no}));
  source->read(1, batch, 1);  // a row takes the place of another
  EXPECT_EQ(batch.pairs[1].size(), 1U);
  EXPECT_EQ(batch.sides[19], -1);
  const auto mine = rows(10);
  mine->keep_losses({kPreference});
  EXPECT_EQ(mine->losses(), std::vector<std::string>{kPreference});
  EXPECT_EQ(row_of(*mine, 0).targets.size(), 1U);
}

TEST_F(WholeRowsTest, GiveEachPairItsOwnReferenceOverSeveralStores) {
  build({"ab", "cde", "fghi", "jkl"});
  make_pairs();
  std::vector<std::unique_ptr<TokenSource>> parts;
  parts.push_back(rows(10));
  parts.push_back(rows(10));
  ReferencedSource source(concatenated_source(std::move(parts)));
  ASSERT_EQ(source.num_pairs(), 4);
  EXPECT_EQ(row_of(source, 0).pairs.at(0).at(0).reference, (std::array{0.0, 0.0}));
  source.set_sums({0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5});
  for (int64_t index = 0; index < source.num_sequences(); ++index) {
    const TokenBatch batch = row_of(source, index);
    for (const Pair& pair : batch.pairs.at(0)) {
      const auto first = 2.0 * static_cast<double>(pair.number) + 0.5;
      EXPECT_EQ(pair.reference, (std::array{first, first + 1.0}));
      EXPECT_EQ(pair.number / 2, 2 * index / source.num_sequences());
    }
  }
  EXPECT_ANY_THROW(source.set_sums({1.0, 2.0}));
}

TEST_F(WholeRowsTest, LeaveOutAPairIfASideHasNoTarget) {
  build({"ab", "c", "de", "fg"});
  make_pairs();
  const auto source = rows(8);
  EXPECT_EQ(shown(*source), "de fg");
  EXPECT_HAS(source->describe(), "1 pair left out without a target (the first: pair 0)");
}

TEST_F(WholeRowsTest, HaveAFingerprintOfStoreLengthAndRule) {
  build({"abc", "defg", "hi"});
  build({"abc", "defg", "hj"}, "other");
  std::set<std::string> found;
  for (const bool cut : {false, true}) {
    for (const int64_t seq_len : {7, 8}) {
      for (const char* store : {"store", "other"}) {
        found.insert(rows(seq_len, cut, store)->fingerprint());
      }
    }
  }
  EXPECT_EQ(found.size(), 8U);
  EXPECT_FALSE(found.contains(open_source(dir / "store", 8, true)->fingerprint()));
}

TEST_F(WholeRowsTest, TakeAKeptPlanAndMakeADamagedOrForeignOneAnew) {
  build({"abc", "defg", "hi", "jklmn"});
  const std::string expected = shown(*rows(8));
  const std::string kept = read_text(plan());
  const fs::path file = plan();
  const auto time = fs::last_write_time(file);
  EXPECT_EQ(shown(*rows(8)), expected);
  EXPECT_EQ(fs::last_write_time(file), time) << "the kept plan is used";
  std::vector<std::string> bad = {"", kept.substr(0, kept.size() - 4), kept + "xxxx"};
  for (size_t byte = 0; byte < kept.size(); byte += 3) {
    bad.push_back(kept);
    bad.back()[byte] = static_cast<char>(bad.back()[byte] ^ 4);
  }
  for (const std::string& content : bad) {
    write_text_durable(file, content);
    EXPECT_EQ(shown(*rows(8)), expected);
    EXPECT_EQ(read_text(file), kept) << "made anew";
  }
  fs::remove_all(dir / "cache");
  rows(7);
  fs::rename(plan(), file);  // a plan for another length
  EXPECT_EQ(shown(*rows(8)), expected);
  EXPECT_EQ(read_text(file), kept);
}

TEST_F(WholeRowsTest, KeepNoPlanWithoutACacheOrTheWish) {
  build({"abc", "defg", "hi"});
  for (const WholeRows& how :
       {WholeRows{8, false, {}}, WholeRows{8, false, dir / "cache", false}}) {
    EXPECT_EQ(open_whole_rows(dir / "store", how)->num_sequences(), 2);
    EXPECT_FALSE(fs::exists(dir / "cache"));
  }
}

TEST_F(WholeRowsTest, RefuseToReadAStoreThatWasChangedAfterThePlanWasMade) {
  build({"abc", "defg", "hi", "jklmn"});
  rows(8);
  const fs::path ends = dir / "store" / "documents_00000.bin";
  std::string content = read_text(ends);
  content[0] = 7;  // defg's tokens become those of abc
  write_text_durable(ends, content);
  EXPECT_HAS(input_error([&] { shown(*rows(8)); }), "documents_00000.bin");
  EXPECT_HAS(input_error([&] { shown(*rows(8, false, "store", false)); }),
             "The store has changed since the plan was made");
}

TEST_F(WholeRowsTest, RefuseWhatHasNoDocumentsAndSayWhatToDo) {
  build({"abc"});
  EXPECT_HAS(
      input_error([&] { open_whole_rows(dir / "store", {8, false, {}}, true, "ids"); }),
      "a token store has no fields");
  EXPECT_HAS(input_error([&] { open_whole_rows(dir / "absent", {8, false, {}}); }),
             "no such file");
  fs::create_directories(dir / "saved");
  dir.write("saved/dataset_info.json", "{}");
  dir.write("saved/state.json", "{}");
  EXPECT_HAS(input_error([&] { open_whole_rows(dir / "saved", {8, false, {}}); }),
             "--field input_ids --tokenizer MODEL --out data/NAME");
}

}  // namespace
}  // namespace longhaul::data
