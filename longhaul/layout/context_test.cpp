#include "longhaul/layout/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "longhaul/base/error.h"

namespace longhaul::layout {
namespace {

TEST(ContextLayout, PairsEarlyChunksWithLateOnes) {
  const std::vector<int32_t> row{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const ContextLayout layout(12, 3);
  EXPECT_EQ(layout.take(row, 0), (std::vector<int32_t>{0, 1, 10, 11}));
  EXPECT_EQ(layout.take(row, 1), (std::vector<int32_t>{2, 3, 8, 9}));
  EXPECT_EQ(layout.take(row, 2), (std::vector<int32_t>{4, 5, 6, 7}));
}

TEST(ContextLayout, GivesEveryRankTheSameNumberOfVisibleKeys) {
  const ContextLayout layout(480, 5);
  int64_t first = 0;
  for (int rank = 0; rank < 5; ++rank) {
    int64_t keys = 0;
    for (const ContextChunk& chunk : layout.chunks(rank)) {
      for (int64_t i = 0; i < chunk.length; ++i) keys += chunk.begin + i + 1;
    }
    if (rank == 0) first = keys;
    EXPECT_EQ(keys, first) << rank;
  }
}

TEST(ContextLayout, TakesEveryColumnOfEveryRowOnce) {
  for (const int ranks : {1, 2, 3, 4}) {
    const ContextLayout layout(24, ranks);
    std::vector<int32_t> rows(72);
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<int32_t> seen;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<int32_t> mine = layout.take(rows, rank);
      EXPECT_EQ(static_cast<int64_t>(mine.size()), 3 * layout.local_len());
      seen.insert(seen.end(), mine.begin(), mine.end());
    }
    std::ranges::sort(seen);
    EXPECT_EQ(seen, rows) << ranks;
  }
}

TEST(ContextLayout, OneRankTakesAnyLengthWhole) {
  const ContextLayout layout(7, 1);
  ASSERT_EQ(layout.chunks(0).size(), 1U);
  EXPECT_EQ(layout.chunks(0)[0].length, 7);
}

std::string refusal(int64_t seq_len, int ranks) {
  try {
    const ContextLayout layout(seq_len, ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ContextLayout, NamesTheNearestLengthsThatCanBeCut) {
  EXPECT_EQ(
      refusal(1000, 3),
      "[context] sequences of 1000 tokens cannot be cut for parallel.cp = 3: "
      "data.seq_len must be a multiple of 2 * cp = 6; the nearest are 996 and 1002");
  EXPECT_EQ(refusal(4, 4),
            "[context] sequences of 4 tokens cannot be cut for parallel.cp = 4: "
            "data.seq_len must be a multiple of 2 * cp = 8; the nearest is 8");
  EXPECT_EQ(refusal(996, 3), "accepted");
}

}  // namespace
}  // namespace longhaul::layout
