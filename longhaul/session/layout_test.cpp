#include "longhaul/session/layout.h"

#include <gtest/gtest.h>

#include <numeric>

namespace longhaul::session {
namespace {

using Values = std::vector<int32_t>;
using data::kIgnore;

/// Returns two sequences of 8 positions, with targets by position and by sequence.
data::TokenBatch two_sequences() {
  data::TokenBatch batch;
  batch.resize(2, 8);
  std::iota(batch.tokens.begin(), batch.tokens.end(), 100);
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  batch.targets = {batch.tokens, {1, 0}};
  batch.segments = batch.positions;
  batch.document_end.assign(16, 8);
  batch.document_end[15] = 6;
  batch.real.assign(16, 1);
  batch.real[15] = 0;
  return batch;
}

TEST(TakePositions, EveryFieldKeepsItsValuesAtTheRanksPositions) {
  const layout::ContextLayout context(8, 2);  // rank 1 holds positions 2 to 5
  data::TokenBatch batch = two_sequences();
  take_positions(context, 1, batch);
  EXPECT_EQ(batch.num_sequences, 2);
  EXPECT_EQ(batch.seq_len, 4);
  EXPECT_EQ(batch.tokens, (Values{102, 103, 104, 105, 110, 111, 112, 113}));
  EXPECT_EQ(batch.targets[0], batch.tokens);
  EXPECT_EQ(batch.positions, (Values{2, 3, 4, 5, 10, 11, 12, 13}));
  EXPECT_EQ(batch.segments, batch.positions);
  EXPECT_EQ(batch.document_start, Values(8, 0));
  EXPECT_EQ(batch.document_end, Values(8, 8));
  EXPECT_EQ(batch.real, Values(8, 1));
  batch = two_sequences();
  take_positions(context, 0, batch);
  EXPECT_EQ(batch.document_end, (Values{8, 8, 8, 8, 8, 8, 8, 6}));
  EXPECT_EQ(batch.real, (Values{1, 1, 1, 1, 1, 1, 1, 0}));
}

TEST(TakePositions, ASequencesOwnTargetsStayWithTheRankOfItsFirstPosition) {
  const layout::ContextLayout context(8, 2);
  data::TokenBatch first = two_sequences();
  data::TokenBatch second = two_sequences();
  take_positions(context, 0, first);
  take_positions(context, 1, second);
  EXPECT_EQ(first.positions[0], 0);
  EXPECT_EQ(first.targets[1], (Values{1, 0}));
  EXPECT_EQ(second.targets[1], (Values{kIgnore, kIgnore}));
  EXPECT_EQ(first.num_targets(1) + second.num_targets(1), 2);
  EXPECT_EQ(first.num_targets(0) + second.num_targets(0), 16);
}

TEST(TakePositions, OneRankKeepsABatchAsItIs) {
  data::TokenBatch batch = two_sequences();
  take_positions(layout::ContextLayout(8, 1), 0, batch);
  EXPECT_EQ(batch.tokens, two_sequences().tokens);
  EXPECT_EQ(batch.targets, two_sequences().targets);
  EXPECT_EQ(batch.document_end, two_sequences().document_end);
}

TEST(TakePositions, FieldsThatTheDataDoesNotHaveStayAbsent) {
  data::TokenBatch batch;
  batch.resize(1, 8);
  take_positions(layout::ContextLayout(8, 2), 1, batch);
  EXPECT_TRUE(batch.segments.empty());
  EXPECT_TRUE(batch.document_end.empty());
  EXPECT_TRUE(batch.real.empty());
  EXPECT_EQ(batch.targets[0].size(), 4U);
}

}  // namespace
}  // namespace longhaul::session
