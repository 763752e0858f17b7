#include "longhaul/tensor/init.h"

#include <gtest/gtest.h>

#include <cmath>

namespace longhaul::tensor {
namespace {

format::TensorSlice whole() {
  return format::TensorSlice::whole("w", {37, 53}, format::DType::F32);
}

std::vector<float> values(const format::TensorSlice& slice, int64_t begin, int64_t end,
                          uint64_t seed = 7) {
  std::vector<float> out(static_cast<size_t>(end - begin));
  initial_values(slice, {Init::Kind::Normal, 0.02}, seed, begin, end, out.data());
  return out;
}

TEST(Init, HasTheAskedMeanAndDeviation) {
  const auto big = format::TensorSlice::whole("big", {1000, 1000}, format::DType::F32);
  double sum = 0;
  double squares = 0;
  for (const float v : values(big, 0, 1000000)) {
    sum += v;
    squares += double{v} * v;
  }
  EXPECT_NEAR(sum / 1e6, 0.0, 1e-4);
  EXPECT_NEAR(std::sqrt(squares / 1e6), 0.02, 1e-4);
}

TEST(Init, ColumnSliceHasTheValuesOfTheWhole) {
  const auto all = values(whole(), 0, 37 * 53);
  format::TensorSlice part = whole();
  part.offset = {5, 11};
  part.extent = {20, 31};
  const auto mine = values(part, 0, 20 * 31);
  for (int64_t i = 0; i < 20; ++i) {
    for (int64_t j = 0; j < 31; ++j) {
      ASSERT_EQ(mine[static_cast<size_t>(i * 31 + j)],
                all[static_cast<size_t>((i + 5) * 53 + j + 11)]);
    }
  }
}

TEST(Init, FlatRangeHasTheValuesOfTheWhole) {
  const auto all = values(whole(), 0, 37 * 53);
  const auto part = values(whole(), 101, 1234);
  for (size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], all[i + 101]);
}

TEST(Init, DependsOnSeedAndName) {
  format::TensorSlice other = whole();
  other.name = "v";
  EXPECT_NE(values(whole(), 0, 8), values(other, 0, 8));
  EXPECT_NE(values(whole(), 0, 8), values(whole(), 0, 8, 8));
}

TEST(Init, ARowOfTheWholeIsZeroInEverySliceAndRange) {
  format::TensorSlice part = whole();
  part.offset = {5, 0};
  part.extent = {20, 53};
  for (const format::TensorSlice& slice : {whole(), part}) {
    const int64_t size = slice.num_elements();
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{0, size}, {100, 150}, {3 * 53 + 7, 4 * 53}}) {
      for (const int64_t row : {0, 5, 6, 8, 24, 25, 36}) {
        const auto before = values(slice, begin, end);
        auto after = before;
        zero_row(slice, row, begin, end, after.data());
        for (int64_t i = begin; i < end; ++i) {
          const auto at = static_cast<size_t>(i - begin);
          const bool in_row = i / 53 + slice.offset[0] == row;
          ASSERT_EQ(after[at], in_row ? 0.0F : before[at]) << row << ' ' << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::tensor
