// The tests check the factors that a model's code has for embeddings and for the terms of
// a residual sum, and its divisor of logits.
#include "longhaul/ops/embedding.h"
#include "longhaul/ops/loss_head.h"
#include "longhaul/ops/scaled.h"
#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

at::Tensor bf16(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).to(at::kBFloat16);
}

/// The reference is Gemma3TextScaledWordEmbedding of transformers 5.23, in bf16.
TEST(Scaled, EmbeddingsHaveTheBitsOfGemma3) {
  const at::Tensor row = bf16({1.0, 1.0078125, -0.3, 3e-3});
  struct Case {
    double hidden, scale;
    std::vector<double> scaled;
  };
  const std::vector<Case> cases = {
      {640, 25.25, {25.25, 25.5, -7.59375, 0.07568359375}},
      {1152, 34.0, {34.0, 34.25, -10.25, 0.10205078125}},
      {2560, 50.5, {50.5, 51.0, -15.1875, 0.1513671875}},
      {3840, 62.0, {62.0, 62.5, -18.625, 0.1865234375}},
      {5376, 73.5, {73.5, 74.0, -22.125, 0.220703125}},
  };
  for (const Case& c : cases) {
    const double scale = rounded_to(at::kBFloat16, std::sqrt(c.hidden));
    EXPECT_EQ(scale, c.scale);
    const auto table = bound(row.unsqueeze(0));
    const at::Tensor y =
        scaled(embedding(at::zeros({1}, at::kInt), table), scale).squeeze(0);
    EXPECT_TRUE(at::equal(y, bf16(c.scaled))) << c.hidden << y;
    backward(y, row);
    EXPECT_TRUE(at::equal(table->grad().squeeze(0), bf16(c.scaled).to(at::kFloat)));
  }
  EXPECT_EQ(rounded_to(at::kFloat, std::sqrt(1152.0)), std::sqrt(1152.0F));
}

/// The reference is a tensor times a Python float, as in Granite's code.
TEST(Scaled, IsRoundedOnceAndKeepsNothing) {
  at::manual_seed(1);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const double scale : {12.0, 0.22, 0.263, 1.0 / 3.0}) {
      const at::Tensor x = at::randn({37, 51}).to(type),
                       dy = at::randn({37, 51}).to(type);
      const auto once = [&](const at::Tensor& of) {
        return (of.to(at::kFloat) * static_cast<float>(scale)).to(type);
      };
      const at::Tensor in = leaf(x);
      at::Tensor y, made = in.neg();
      const auto storage = made.storage().getWeakStorageImpl();
      y = scaled(made, scale);
      EXPECT_EQ(y.scalar_type(), type);
      made.reset();
      EXPECT_TRUE(storage.expired()) << "is kept";
      backward(y, dy);
      EXPECT_TRUE(at::equal(y, once(-x)));
      EXPECT_TRUE(at::equal(in.grad(), -once(dy)));
    }
  }
  const at::Tensor x = at::ones({3});
  EXPECT_TRUE(scaled(x, 1.0).is_same(x));
  // transformers 5.23 gives these values.
  const at::Tensor row = bf16({1.0, 1.0078125, -0.3, 3e-3});
  EXPECT_TRUE(
      at::equal(scaled(row, 12.0), bf16({12.0, 12.125, -3.609375, 0.0361328125})));
  EXPECT_TRUE(at::equal(scaled(row, 0.22), bf16({0.2197265625, 0.2216796875, -0.06640625,
                                                 0.000659942626953125})));
}

class ScaledLossHead
    : public ::testing::TestWithParam<std::tuple<at::ScalarType, bool, double, double>> {
};

INSTANTIATE_TEST_SUITE_P(All, ScaledLossHead,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Bool(),
                                            ::testing::Values(0.0, 1e-2),
                                            ::testing::Values(0.0, 0.7)));

/// The head has a bias and may have a z-loss. The cap changes most of the divided logits.
TEST_P(ScaledLossHead, IsTheCrossEntropyOfTheQuotientsThatMayBeCapped) {
  const auto [type, fused, z_loss, cap] = GetParam();
  at::manual_seed(2);
  const int64_t T = 150, K = 24, V = 101;
  const at::Tensor h = at::randn({T, K}).to(type), w = at::randn({V, K}).to(type),
                   b = at::randn({V}).to(type);
  at::Tensor targets = at::randint(0, V, {T}, at::kLong);
  targets.narrow(0, 10, 20).fill_(-100);
  LossHeadOptions options{1.0 / 130.0, z_loss, fused};
  options.bias = bound(b);
  options.logits_divisor = 6.0;
  options.logits_cap = cap;
  const auto weight = bound(w);
  const at::Tensor mine = leaf(h);
  const auto result = loss_head(mine, weight, targets, options);
  torch::autograd::backward({result.loss}, {});
  const auto wide = [](const at::Tensor& x) { return leaf(x.to(at::kDouble)); };
  const at::Tensor wide_h = wide(h), wide_w = wide(w), wide_b = wide(b);
  at::Tensor logits = at::linear(wide_h, wide_w, wide_b) / 6.0;
  if (cap != 0.0) logits = at::tanh(logits / cap) * cap;
  const at::Tensor lse = at::logsumexp(logits, {1});
  const at::Tensor ce = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum);
  const at::Tensor loss =
      options.scale * (ce + z_loss * (lse * lse * (targets >= 0)).sum());
  torch::autograd::backward({loss}, {});
  const double slack = type == at::kFloat ? 1e-6 : 5e-3;
  EXPECT_NEAR(result.loss.item<double>(), loss.item<double>(),
              slack * loss.item<double>());
  EXPECT_NEAR(result.cross_entropy_sum.item<double>(), ce.item<double>(),
              slack * ce.item<double>());
  const double tolerance = 3 * tolerance_of(type);
  expect_close(mine.grad(), wide_h.grad(), tolerance, "dh");
  expect_close(weight->grad(), wide_w.grad(), tolerance, "dw");
  expect_close(options.bias->grad(), wide_b.grad(), tolerance, "db");
  const at::NoGradGuard no_grad;
  EXPECT_EQ(loss_head(h, weight, targets, options).cross_entropy_sum.item<double>(),
            result.cross_entropy_sum.item<double>());
}

/// The reference is `logits = logits / 6.0` of transformers' Granite in bf16.
TEST(ScaledLossHeadBits, AreThoseOfLogitsRoundedAgain) {
  at::manual_seed(3);
  const at::Tensor h = at::randn({20, 16}).to(at::kBFloat16),
                   w = at::randn({50, 16}).to(at::kBFloat16);
  const at::Tensor targets = at::randint(0, 50, {20}, at::kLong);
  const at::Tensor product = at::linear(h, w);
  const at::Tensor quotients = (product.to(at::kFloat) / 6.0F).to(at::kBFloat16);
  const at::NoGradGuard no_grad;
  for (const bool fused : {false, true}) {
    LossHeadOptions options{1.0, 0.0, fused};
    options.logits_divisor = 6.0;
    const double found =
        loss_head(h, bound(w), targets, options).cross_entropy_sum.item<double>();
    const double expected =
        at::cross_entropy_loss(quotients.to(at::kDouble), targets, {}, at::Reduction::Sum)
            .item<double>();
    EXPECT_NEAR(found, expected, 1e-6 * expected) << fused;
  }
}

TEST(ScaledLossHeadBits, AreTheOldOnesWhereTheDivisorIsOne) {
  at::manual_seed(4);
  const at::Tensor h = at::randn({20, 16}), w = at::randn({50, 16});
  const at::Tensor targets = at::randint(0, 50, {20}, at::kLong);
  // Division by a power of two is exact: gradients have the same bits, scaled.
  const auto run = [&](double divisor, double of) {
    LossHeadOptions options{0.25, 0.0, true};
    options.logits_divisor = divisor;
    const auto weight = bound(w * of);
    const at::Tensor in = leaf(h);
    torch::autograd::backward({loss_head(in, weight, targets, options).loss}, {});
    return std::pair(in.grad(), weight->grad());
  };
  const auto [dh, dw] = run(1.0, 1.0);
  const auto [of_quotients, dw_of_quotients] = run(8.0, 8.0);
  EXPECT_TRUE(at::equal(dh, of_quotients));
  EXPECT_TRUE(at::equal(dw, dw_of_quotients * 8.0));
}

TEST(ScaledLossHeadBits, RefusesADivisorThatDividesByNothingAndANegativeCap) {
  LossHeadOptions options;
  for (const double divisor : {0.0, -1.0, std::nan("")}) {
    options.logits_divisor = divisor;
    EXPECT_ANY_THROW(loss_head(leaf(at::ones({3, 4})), bound(at::ones({5, 4})),
                               at::zeros({3}, at::kLong), options));
  }
  options.logits_divisor = 1.0;
  options.logits_cap = -1.0;
  EXPECT_ANY_THROW(loss_head(leaf(at::ones({3, 4})), bound(at::ones({5, 4})),
                             at::zeros({3}, at::kLong), options));
  options.logits_cap = 1.0;
  EXPECT_ANY_THROW(
      cross_entropy(leaf(at::ones({3, 4})), at::zeros({3}, at::kLong), options));
  options.logits_cap = 0.0;
  options.logits_divisor = 2.0;
  EXPECT_ANY_THROW(
      cross_entropy(leaf(at::ones({3, 4})), at::zeros({3}, at::kLong), options));
}

}  // namespace
}  // namespace longhaul::ops
