// Tests that the kernels which carry rows to experts give the bits of the composite
// forms.
#include "longhaul/ops/experts/routed_rows.h"

#include "longhaul/ops/gated_product.h"
#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

TEST(Route, SortsTheChoicesOfTokensByExpert) {
  // No token chooses expert 1 or the last expert, 5.
  const RoutedRows rows =
      route(at::tensor({0, 3, 2, 3, 0, 2, 3, 4}, at::kLong).view({4, 2}), 6);
  EXPECT_TRUE(at::equal(rows.token, at::tensor({0, 2, 1, 2, 0, 1, 3, 3}, at::kLong)));
  EXPECT_TRUE(at::equal(rows.place,
                        at::tensor({0, 4, 2, 5, 1, 3, 6, 7}, at::kLong).view({4, 2})));
  EXPECT_TRUE(at::equal(rows.offsets, at::tensor({0, 2, 2, 4, 7, 8, 8}, at::kInt)));
}

TEST(Route, OfNoTokensGivesEveryExpertNoRows) {
  const RoutedRows rows = route(at::zeros({0, 2}, at::kLong), 3);
  EXPECT_EQ(rows.token.numel(), 0);
  EXPECT_TRUE(at::equal(rows.offsets, at::zeros({4}, at::kInt)));
}

/// Returns the gathered rows, the sums of the scaled rows of each token, and the
/// gradients of the rows and of the input.
std::vector<at::Tensor> moved(const at::Tensor& values, const RoutedRows& rows,
                              const at::Tensor& dy, bool fused) {
  const at::Tensor x = leaf(values);
  const at::Tensor gathered = gather_rows(x, rows, fused);
  const at::Tensor scaled = leaf(gathered * 0.3F);
  const at::Tensor y = sum_rows(scaled, rows, fused);
  backward(y, dy);
  backward(gathered, scaled.grad());
  return {gathered.detach(), y.detach(), scaled.grad(), x.grad()};
}

TEST(RoutedRows, AreGatheredAndSummedWithTheBitsOfTheCompositeForms) {
  at::manual_seed(1);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const auto& [tokens, k, features] :
         {std::array{5, 1, 1}, std::array{70, 2, 37}, std::array{9, 8, 264},
          std::array{0, 2, 8}, std::array{600, 3, 64}}) {
      const at::Tensor scores = at::rand({tokens, 8});
      const at::Tensor chosen =
          std::get<0>(at::sort(std::get<1>(at::topk(scores, k, -1)), -1));
      const RoutedRows rows = route(chosen, 8);
      const at::Tensor x = at::randn({tokens, features}).to(type);
      const at::Tensor dy = at::randn({tokens, features}).to(type);
      const auto fused = moved(x, rows, dy, true), plain = moved(x, rows, dy, false);
      for (size_t i = 0; i < fused.size(); ++i) {
        EXPECT_TRUE(at::equal(fused[i], plain[i])) << tokens << ", result " << i;
      }
    }
  }
}

TEST(RoutedRows, HaveWeightsThatTheGatedProductTakesIn) {
  at::manual_seed(2);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const Activation activation :
         {Activation::Silu, Activation::GeluTanh, Activation::GeluExact}) {
      const at::Tensor both = at::randn({33, 2 * 70}).to(type);
      const at::Tensor weights = at::rand({33}), dy = at::randn({33, 70}).to(type);
      const auto run = [&](bool fused) {
        const at::Tensor in = leaf(both), w = leaf(weights);
        const at::Tensor y = gated_product(in.narrow(1, 0, 70), in.narrow(1, 70, 70),
                                           activation, fused, w);
        backward(y, dy);
        return std::vector<at::Tensor>{y.detach(), in.grad(), w.grad()};
      };
      const auto fused = run(true), plain = run(false);
      for (size_t i = 0; i < fused.size(); ++i) {
        expect_close(fused[i], plain[i], tolerance_of(type), std::to_string(i));
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::ops
