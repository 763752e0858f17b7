#include "longhaul/base/error.h"
#include "longhaul/ops/common/dropout_draws.h"
#include "tests/support/dropout_by_element.h"
#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

/// Returns draws for rows of sequences that are not in order, some with a number beyond
/// 32 bits.
Dropout draws_for(int64_t rows, double probability) {
  Dropout out;
  out.probability = probability;
  out.key = 0x299f31d0a4093822;
  out.sequences = at::arange(rows, at::kLong).mul_(0x1234567891).remainder_(1L << 47);
  out.index = at::arange(rows, at::kInt).mul_(7).remainder_(8192);
  return out;
}

at::Tensor expected(const Dropout& draws, int64_t columns) {
  at::Tensor out = at::empty({draws.index.size(0), columns});
  for (int64_t r = 0; r < out.size(0); ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      out[r][c] = expected_factor(draws, draws.sequences[r].item<int64_t>(),
                                  draws.index[r].item<int32_t>(), 0, c);
    }
  }
  return out;
}

TEST(Dropout, DrawsPhiloxAtTheCounterOfTheElement) {
  const Dropout draws = draws_for(11, 0.3);
  for (const auto& [first, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 16}, {3, 1}, {5, 18}, {1030, 7}}) {
    const at::Tensor heads = at::tensor({0, 5, 40000}, at::kLong).view({3, 1, 1});
    const at::Tensor got =
        dropout_factors(draws, draws.sequences.unsqueeze(1), draws.index.unsqueeze(1),
                        heads, first, columns);
    ASSERT_EQ(got.sizes(), (std::vector<int64_t>{3, 11, columns}));
    for (int64_t h = 0; h < 3; ++h) {
      for (int64_t r = 0; r < 11; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          EXPECT_EQ(got[h][r][c].item<float>(),
                    expected_factor(draws, draws.sequences[r].item<int64_t>(),
                                    draws.index[r].item<int32_t>(),
                                    heads.flatten()[h].item<int64_t>(), first + c));
        }
      }
    }
  }
}

TEST(Dropout, DropsTheFractionThatIsAskedForAndKeepsTheMean) {
  const at::Tensor x = at::ones({512, 768});
  const auto count = static_cast<double>(x.numel());
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor y = dropout(x, draws_for(512, p), true);
    const double dropped = (y == 0.0).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(dropped, p, 5 * std::sqrt(p * (1 - p) / count));
    EXPECT_NEAR(y.to(at::kDouble).mean().item<double>(), 1.0,
                5 * std::sqrt(p / (1 - p) / count));
  }
}

TEST(Dropout, HasTheSameBitsFusedAndComposite) {
  at::manual_seed(3);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t columns : {1, 3, 16, 61, 64, 65, 127, 770}) {
      const Dropout draws = draws_for(37, 0.25);
      const at::Tensor x = at::randn({37, columns}).to(type);
      const at::Tensor dy = at::randn({37, columns}).to(type);
      const at::Tensor a = leaf(x), b = leaf(x);
      const at::Tensor fused = dropout(a, draws, true);
      const at::Tensor composite = dropout(b, draws, false);
      EXPECT_TRUE(at::equal(fused, composite)) << columns;
      backward(fused, dy);
      backward(composite, dy);
      EXPECT_TRUE(at::equal(a.grad(), b.grad())) << columns;
      const at::Tensor factors = expected(draws, columns);
      EXPECT_TRUE(at::equal(composite, (x.to(at::kFloat) * factors).to(type)));
      EXPECT_TRUE(at::equal(a.grad(), (dy.to(at::kFloat) * factors).to(type)));
    }
  }
}

TEST(Dropout, OfSomeColumnsIsThatOfTheWholeRow) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({37, 130});
  for (const bool fused : {false, true}) {
    Dropout draws = draws_for(37, 0.25);
    const at::Tensor whole = dropout(x, draws, fused);
    for (const int64_t first : {1, 4, 66, 68}) {
      draws.first_column = first;
      const int64_t columns = 130 - first;
      EXPECT_TRUE(at::equal(dropout(x.narrow(1, first, columns), draws, fused),
                            whole.narrow(1, first, columns)))
          << first;
    }
  }
}

TEST(Dropout, DrawsOtherwiseForAnotherKeySequenceOrRow) {
  const at::Tensor x = at::ones({64, 256});
  const Dropout draws = draws_for(64, 0.5);
  const auto agreement = [&](const Dropout& other) {
    const at::Tensor a = dropout(x, draws, true), b = dropout(x, other, true);
    return (a == b).to(at::kDouble).mean().item<double>();
  };
  EXPECT_EQ(agreement(draws), 1.0);
  Dropout key = draws, sequences = draws, rows = draws;
  key.key ^= uint64_t{1} << 63;
  sequences.sequences = draws.sequences + 1;
  rows.index = draws.index + 1;
  for (const Dropout& other : {key, sequences, rows}) {
    EXPECT_NEAR(agreement(other), 0.5, 5 * 0.5 / 128);
  }
}

TEST(Dropout, WithoutAProbabilityIsTheIdentityAndAsksForNothing) {
  const at::Tensor x = at::ones({4, 4});
  EXPECT_TRUE(dropout(x, {}, true).is_same(x));
  Dropout draws = draws_for(3, 0.5);
  EXPECT_THROW(dropout(x, draws, true), Error);  // three rows, not four
  EXPECT_THROW(dropout(x, draws_for(4, 1.0), true), Error);
}

}  // namespace
}  // namespace longhaul::ops
