// The tests compare the embedding and the loss head over parts of the vocabulary to those
// over the whole.
#include "longhaul/ops/embedding.h"
#include "longhaul/ops/loss_head.h"
#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

/// Returns a parameter with rows [begin, end) of a table.
tensor::ParameterPtr part_of(const at::Tensor& table, int64_t begin, int64_t end) {
  auto parameter = tensor::make_parameter("table", table.sizes().vec(), {});
  format::TensorSlice slice = parameter->slice();
  slice.offset[0] = begin;
  slice.extent[0] = end - begin;
  parameter->set_slice(slice);
  parameter->set_frozen(false);
  const at::Tensor rows = table.narrow(0, begin, end - begin).clone();
  parameter->bind(rows, at::zeros(rows.sizes(), at::kFloat));
  return parameter;
}

const std::vector<std::pair<int64_t, int64_t>> kParts = {{0, 34}, {34, 68}, {68, 101}};

TEST(SplitEmbedding, PartsAddUpToTheWholeTable) {
  at::manual_seed(1);
  const at::Tensor table = at::randn({101, 16}), dy = at::randn({40, 16});
  const at::Tensor ids = at::randint(0, 101, {40}, at::kInt);
  const auto whole = bound(table);
  const at::Tensor y = embedding(ids, whole);
  backward(y, dy);
  at::Tensor sum = at::zeros_like(y);
  std::vector<at::Tensor> grads;
  for (const auto& [begin, end] : kParts) {
    const auto part = part_of(table, begin, end);
    const at::Tensor mine = embedding(ids, part);
    const at::Tensor outside = ids.lt(begin).logical_or(ids.ge(end));
    EXPECT_EQ(mine.index({outside}).abs().sum().item<float>(), 0.0F);
    backward(mine, dy);
    sum.add_(mine.detach());
    grads.push_back(part->grad());
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(embedding(ids, part), mine));
  }
  EXPECT_TRUE(at::equal(sum, y));
  EXPECT_TRUE(at::equal(at::cat(grads), whole->grad()));
}

/// A whole table and its parts behave as torch's Embedding with padding_idx.
TEST(SplitEmbedding, APaddingRowIsLookedUpAndHasNoGradient) {
  at::manual_seed(5);
  const at::Tensor table = at::randn({101, 16}), dy = at::randn({200, 16});
  const at::Tensor ids = at::randint(0, 40, {200}, at::kInt);
  for (const int64_t padding : {0, 7, 33, 34}) {
    const at::Tensor plain = leaf(table);
    backward(at::embedding(plain, ids.to(at::kLong), padding), dy);
    const auto whole = bound(table);
    whole->set_padding_row(padding);
    const at::Tensor y = embedding(ids, whole);
    EXPECT_TRUE(at::equal(y, table.index_select(0, ids)));
    backward(y, dy);
    expect_close(whole->grad(), plain.grad(), 1e-6, "dtable");
    EXPECT_EQ(whole->grad()[padding].abs().max().item<float>(), 0.0F);
    std::vector<at::Tensor> grads;
    for (const auto& [begin, end] : kParts) {
      const auto part = part_of(table, begin, end);
      part->set_padding_row(padding);
      backward(embedding(ids, part), dy);
      grads.push_back(part->grad());
    }
    EXPECT_TRUE(at::equal(at::cat(grads), whole->grad()));
    whole->set_padding_row({});
    backward(embedding(ids, whole), dy);
    EXPECT_GT(whole->grad()[padding].abs().max().item<float>(), 0.1F);
  }
}

class SplitLossHead : public ::testing::TestWithParam<
                          std::tuple<at::ScalarType, bool, double, double, double>> {};

INSTANTIATE_TEST_SUITE_P(All, SplitLossHead,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Bool(),
                                            ::testing::Values(0.0, 1e-2),
                                            ::testing::Values(1.0, 6.0),
                                            ::testing::Values(0.0, 3.0)));

/// The parts run one after another: first each for its statistics, then each for the loss
/// with the statistics of all parts.
TEST_P(SplitLossHead, PartsGiveTheLossAndGradientsOfTheWhole) {
  const auto [type, fused, z_loss, divisor, cap] = GetParam();
  at::manual_seed(3);
  const at::Tensor h = at::randn({50, 24}).to(type), w = at::randn({101, 24}).to(type),
                   b = at::randn({101}).to(type);
  at::Tensor targets = at::randint(0, 101, {50}, at::kLong);
  targets.narrow(0, 10, 7).fill_(-100);
  LossHeadOptions options{1.0 / 43.0, z_loss, fused};
  options.logits_divisor = divisor;
  options.logits_cap = cap;
  const auto whole = bound(w), whole_bias = bound(b);
  options.bias = whole_bias;
  const at::Tensor in = leaf(h);
  const LossHeadResult expected = loss_head(in, whole, targets, options);
  torch::autograd::backward({expected.loss}, {});

  options.vocabulary_parts = 3;
  std::vector<at::Tensor> lses, picks;
  options.combine = [&](at::Tensor& lse, at::Tensor& picked) {
    lses.push_back(lse.clone());
    picks.push_back(picked.clone());
  };
  for (const auto& [begin, end] : kParts) {
    const at::NoGradGuard no_grad;
    options.bias = part_of(b, begin, end);
    loss_head(h, part_of(w, begin, end), targets, options);
  }
  ASSERT_EQ(lses.size(), 3U);
  options.combine = [&](at::Tensor& lse, at::Tensor& picked) {
    lse.copy_(at::logsumexp(at::stack(lses), {0}));
    picked.copy_(at::stack(picks).sum({0}));
  };
  at::Tensor dh = at::zeros({50, 24});
  std::vector<at::Tensor> grads, of_bias;
  for (const auto& [begin, end] : kParts) {
    const auto part = part_of(w, begin, end);
    options.bias = part_of(b, begin, end);
    const at::Tensor mine = leaf(h);
    const LossHeadResult result = loss_head(mine, part, targets, options);
    torch::autograd::backward({result.loss}, {});
    EXPECT_NEAR(result.loss.item<double>(), expected.loss.item<double>(),
                1e-6 * expected.loss.item<double>());
    EXPECT_NEAR(result.cross_entropy_sum.item<double>(),
                expected.cross_entropy_sum.item<double>(),
                1e-6 * expected.cross_entropy_sum.item<double>());
    dh.add_(mine.grad());
    grads.push_back(part->grad());
    of_bias.push_back(options.bias->grad());
  }
  const double tolerance = tolerance_of(type);
  expect_close(dh, in.grad(), tolerance, "dh");
  expect_close(at::cat(grads), whole->grad(), tolerance, "dw");
  expect_close(at::cat(of_bias), whole_bias->grad(), tolerance, "db");
}

TEST(SplitLossHead, RefusesAPartThatNothingCombines) {
  const auto part = part_of(at::ones({10, 4}), 0, 5);
  EXPECT_ANY_THROW(
      loss_head(leaf(at::ones({3, 4})), part, at::zeros({3}, at::kLong), {}));
}

}  // namespace
}  // namespace longhaul::ops
