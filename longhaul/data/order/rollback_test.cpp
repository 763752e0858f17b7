#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/data/order/loader.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {
namespace {

/// A source whose sequence i is (i, i, ...).
class CountingSource final : public TokenSource {
 public:
  CountingSource(int64_t sequences, std::string name)
      : sequences_(sequences), name_(std::move(name)) {}
  int64_t num_sequences() const override { return sequences_; }
  int64_t seq_len() const override { return 4; }
  int64_t max_token_id() const override { return 100000; }
  void read(int64_t index, TokenBatch& batch, int64_t row) const override {
    const BatchRow to = batch_row(*this, index, batch, row);
    std::fill(to.tokens.begin(), to.tokens.end(), static_cast<int32_t>(index));
    std::fill(to.targets.begin(), to.targets.end(), static_cast<int32_t>(index));
    fill_plain_positions(to);
  }
  std::string describe() const override { return name_; }
  std::string fingerprint() const override { return name_; }

 private:
  int64_t sequences_;
  std::string name_;
};

constexpr int64_t kGlobal = 4;

std::vector<WeightedSource> sources() {
  return {{std::make_shared<CountingSource>(1000, "one"), 1.0, "one", {}},
          {std::make_shared<CountingSource>(1000, "two"), 1.0, "two", {}}};
}

LoaderOptions options(int64_t first_step) {
  LoaderOptions o;
  o.seed = 5;
  o.global_size = kGlobal;
  o.micro_size = kGlobal;
  o.first_step = first_step;
  o.changes = {{6, {3.0, 1.0}}};  // a new phase begins at step 6
  return o;
}

/// Returns the content of steps [first, last], from the cursor on, and moves the cursor.
std::vector<int64_t> steps(Cursor& cursor, int64_t first, int64_t last) {
  Loader loader(sources(), options(first), cursor);
  std::vector<int64_t> content;
  for (int64_t step = first; step <= last; ++step) {
    const StepBatch& batch = loader.next();
    for (const int32_t token : batch.micro_batches[0].tokens) content.push_back(token);
  }
  cursor = loader.cursor();
  return content;
}

Cursor after(int64_t step) {
  Cursor cursor;
  if (step > 0) steps(cursor, 1, step);
  return cursor;
}

std::vector<int64_t> part(const std::vector<int64_t>& content, int64_t first,
                          int64_t last) {
  const int64_t row = kGlobal * 4;  // tokens of a step
  return {content.begin() + (first - 1) * row, content.begin() + last * row};
}

TEST(Rollback, LeavesOutTheLastBatchesAndKeepsTheOrderOfTheOthers) {
  Cursor straight;
  const auto all = steps(straight, 1, 5);
  Cursor back = after(1);
  back.pass_over_last(after(4), 2 * kGlobal);  // the sequences of steps 3 and 4
  EXPECT_EQ(steps(back, 2, 3), [&] {
    auto expected = part(all, 2, 2);
    const auto fifth = part(all, 5, 5);
    expected.insert(expected.end(), fifth.begin(), fifth.end());
    return expected;
  }());
}

TEST(Rollback, GivesTheSameFromAnyEarlierCursor) {
  const Cursor bad = after(5);
  std::vector<std::vector<int64_t>> ends;
  for (const int64_t step : {0, 1, 2, 3}) {
    Cursor back = after(step);
    back.pass_over_last(bad, 2 * kGlobal);
    steps(back, step + 1, 4);
    ends.push_back(steps(back, 5, 12));
    EXPECT_EQ(back, [&] {
      Cursor other = after(3);
      other.pass_over_last(bad, 2 * kGlobal);
      steps(other, 4, 12);
      return other;
    }());
  }
  for (const auto& end : ends) EXPECT_EQ(end, ends[0]);
}

TEST(Rollback, ReachesIntoAPhaseThatHasNotBegunYet) {
  const Cursor bad = after(8);  // two phases
  ASSERT_EQ(bad.phases.size(), 2u);
  Cursor back = after(3);
  back.pass_over_last(bad, 2 * kGlobal);  // the sequences of steps 7 and 8
  ASSERT_EQ(back.later.size(), 1u);
  EXPECT_EQ(Cursor::from_json(back.to_json()), back);
  Cursor straight;
  const auto all = steps(straight, 1, 10);
  EXPECT_EQ(steps(back, 4, 6), part(all, 4, 6));
  EXPECT_EQ(steps(back, 7, 8), part(all, 9, 10));
  EXPECT_TRUE(back.later.empty());
}

TEST(Rollback, ASecondOneFurtherBackKeepsWhatTheFirstLeftOut) {
  Cursor straight;
  const auto all = steps(straight, 1, 5);
  Cursor first = after(2);
  first.pass_over_last(after(3), kGlobal);  // the sequences of step 3
  steps(first, 3, 3);                       // has the batch of step 4
  Cursor second = after(1);
  second.pass_over_last(first, kGlobal);
  EXPECT_EQ(steps(second, 2, 2), part(all, 2, 2));
  EXPECT_EQ(steps(second, 3, 3), part(all, 5, 5));
}

TEST(Rollback, ChangesNothingBeforeTheCursor) {
  Cursor back = after(3);
  back.pass_over_last(after(4), 3 * kGlobal);  // the batches of steps 2 and 3 lie behind
  EXPECT_EQ(back.phases[0].skipped, (std::vector<SequenceRange>{{12, 16}}));
  EXPECT_EQ(back.phases[0].stream_position(11), 11);
}

TEST(Rollback, ADamagedListOfLaterRangesIsRefused) {
  Json json = after(1).to_json();
  for (const Json& bad : {Json(3), Json::array({1}), Json::parse("[[0, 5, 2]]"),
                          Json::parse("[[-1, 0, 2]]"), Json::parse("[[0, 0, \"x\"]]")}) {
    json["later"] = bad;
    EXPECT_THROW(Cursor::from_json(json), InputError) << bad;
  }
}

/// Returns by source and sequence each number below a phase's `consumed` at which it was
/// read, one number after the other.
using Uses = std::map<std::pair<size_t, int64_t>, std::vector<int64_t>>;
Uses uses_by_place(const std::vector<Phase>& phases) {
  PhaseStream stream(phases);
  Uses uses;
  for (int64_t n = 0; n < phases.back().consumed; ++n) {
    const PhaseStream::Place place = stream.place(n);
    uses[{place.source, place.index}].push_back(n);
  }
  return uses;
}

TEST(PhaseStream, FindsEachUseOfASequenceOverEpochsPhasesAndSkippedData) {
  Phase phase;
  phase.seq_len = 4;
  phase.sources = {{"a", 0.7, 13, "a"}, {"b", 0.3, 29, "b"}, {"a", 1.1, 13, "a again"}};
  for (const bool shuffle : {true, false}) {
    phase.shuffle = shuffle;
    Cursor cursor;
    for (const double weight : {0.7, 4.0, 0.0}) {
      phase.sources[0].weight = weight;
      phase.consumed = 0;
      phase.skipped = {{3, 9}, {40, 57}};
      cursor.begin_phase(phase);
      cursor.phases.back().consumed = 131;
      const PhaseStream stream(cursor.phases);
      const Uses found = uses_by_place(cursor.phases);
      for (size_t s = 0; s < 3; ++s) {
        for (int64_t i = 0; i < phase.sources[s].num_sequences; ++i) {
          const auto at = found.find({s, i});
          const auto expected = at == found.end() ? std::vector<int64_t>() : at->second;
          EXPECT_EQ(stream.uses(s, i, 131), expected) << s << " " << i << " " << weight;
        }
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::data
