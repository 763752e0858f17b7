#include "longhaul/parallel/context/layout.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "longhaul/base/error.h"

namespace longhaul::parallel {
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

TEST(ContextLayout, TakesEveryColumnOfEveryRowOnceAndPutsItBack) {
  for (const int ranks : {1, 2, 3, 4}) {
    const ContextLayout layout(24, ranks);
    const at::Tensor rows = at::arange(72, at::kInt).view({3, 24});
    const std::vector<int32_t> values(rows.data_ptr<int32_t>(),
                                      rows.data_ptr<int32_t>() + 72);
    at::Tensor back = at::full({3, 24}, -1, at::kInt);
    for (int rank = 0; rank < ranks; ++rank) {
      const at::Tensor local = layout.take(rows, rank);
      EXPECT_EQ(local.size(1), layout.local_len());
      const auto span = layout.take(values, rank);
      EXPECT_TRUE(
          at::equal(local.view(-1), at::tensor(at::ArrayRef<int32_t>(span), at::kInt)));
      layout.put(local, rank, back);
    }
    EXPECT_TRUE(at::equal(back, rows)) << ranks;
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
}  // namespace longhaul::parallel
