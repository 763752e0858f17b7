#include "longhaul/session/batch.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <numeric>

namespace longhaul::session {
namespace {

TEST(Batch, EachFieldAndTermOfTheLossHasItsRows) {
  data::TokenBatch batch;
  batch.resize(3, 4);
  std::iota(batch.tokens.begin(), batch.tokens.end(), 0);
  batch.segments.assign(12, 0);
  batch.segments[7] = 1;
  batch.targets = {batch.tokens, {5, data::kIgnore, 7}};
  const nn::Batch rows = batch_of(batch, 1, 2, at::kCPU);
  EXPECT_EQ(rows.tokens[0].item<int>(), 4);
  EXPECT_EQ(rows.segments.sum().item<int>(), 1);
  ASSERT_EQ(rows.targets.size(), 2);
  EXPECT_TRUE(at::equal(rows.targets[0], rows.tokens.to(at::kLong)));
  EXPECT_TRUE(at::equal(rows.targets[1], at::tensor({-100, 7}, at::kLong)));
  EXPECT_FALSE(rows.document_start.defined());
  EXPECT_FALSE(rows.document_end.defined());
  batch.document_end = {4, 4, 4, 4, 2, 2, 2, 2, 3, 3, 3, 3};
  EXPECT_TRUE(at::equal(batch_of(batch, 1, 2, at::kCPU).document_end,
                        at::tensor({2, 2, 2, 2, 3, 3, 3, 3}, at::kInt).view({2, 4})));
  EXPECT_FALSE(rows.real.defined());
  batch.real = {1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_TRUE(at::equal(batch_of(batch, 1, 2, at::kCPU).real,
                        at::tensor({1.0F, 0.0F, 0.0F, 0.0F, 1.0F, 1.0F, 1.0F, 1.0F})));
  EXPECT_EQ(batch.num_real(), 9);
  EXPECT_EQ(batch.num_targets(0), 12);
  EXPECT_EQ(batch.num_targets(1), 2);
}

TEST(Batch, SidesOfPairsAreCountedOverItsRows) {
  data::TokenBatch batch;
  batch.resize(3, 4);
  EXPECT_FALSE(batch_of(batch, 0, 3, at::kCPU).sides.defined());
  batch.pairs = {{{.number = 9, .reference = {-1, -2}}},
                 {{.number = 4, .reference = {-3, -4}}},
                 {{.number = 7, .reference = {-5, -6}}}};
  batch.sides = {0, 0, 1, -1, 0, 1, 1, 1, 0, 1, -1, -1};
  EXPECT_EQ(batch.num_targets(0), 3);
  const nn::Batch rows = batch_of(batch, 1, 2, at::kCPU);
  EXPECT_TRUE(at::equal(rows.sides, at::tensor({0, 1, 1, 1, 2, 3, 4, 4}, at::kLong)));
  EXPECT_TRUE(
      at::equal(rows.reference, at::tensor({-3, -4, -5, -6}, at::kDouble).view({2, 2})));
  batch.pairs[2].clear();
  batch.sides = {0, 0, 1, -1, 0, 1, 1, 1, -1, -1, -1, -1};
  const nn::Batch last = batch_of(batch, 2, 1, at::kCPU);
  EXPECT_TRUE(at::equal(last.sides, at::zeros({4}, at::kLong)));
  EXPECT_EQ(last.reference.sizes(), (at::IntArrayRef{0, 2}));
  EXPECT_EQ(batch.num_targets(0), 2);
}

}  // namespace
}  // namespace longhaul::session
