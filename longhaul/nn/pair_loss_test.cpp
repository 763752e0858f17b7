#include "longhaul/nn/pair_loss.h"

#include <cmath>
#include <functional>

#include "longhaul/nn/loss_head.h"
#include "tests/support/parameters.h"

namespace longhaul::nn {
namespace {

using enum PreferenceLoss;
using ops::bound;
using ops::expect_close;
using ops::leaf;

constexpr PreferenceLoss kAll[] = {Sigmoid, Ipo,         Hinge, Robust,
                                   ApoZero, SigmoidNorm, Simpo, Orpo};

PreferenceSection settings_of(PreferenceLoss loss) {
  return {.loss = loss, .beta = 0.3, .label_smoothing = 0.15, .simpo_gamma = 0.7};
}

/// One pair in plain numbers.
struct Numbers {
  double chosen, rejected, chosen_length, rejected_length;
  double chosen_reference = 0.0, rejected_reference = 0.0;
};

double log_s(double x) { return -std::log1p(std::exp(-x)); }
double s(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// Returns the loss of a pair as TRL's code has it, in plain numbers.
double expected_loss(PreferenceLoss loss, const Numbers& n) {
  const PreferenceSection o = settings_of(loss);
  const double r_c = n.chosen - n.chosen_reference;
  const double r_r = n.rejected - n.rejected_reference;
  const double m_c = r_c / n.chosen_length, m_r = r_r / n.rejected_length;
  const double delta = r_c - r_r, e = o.label_smoothing;
  switch (loss) {
    case Sigmoid:
      return -log_s(o.beta * delta);
    case Hinge:
      return std::max(0.0, 1.0 - o.beta * delta);
    case Ipo:
      return std::pow(m_c - m_r - 1.0 / (2.0 * o.beta), 2);
    case Robust:
      return (-(1 - e) * log_s(o.beta * delta) + e * log_s(-o.beta * delta)) /
             (1.0 - 2.0 * e);
    case ApoZero:
      return 1.0 - s(o.beta * r_c) + s(o.beta * r_r);
    case SigmoidNorm:
      return -log_s(o.beta * (m_c - m_r));
    case Simpo: {
      const double x = o.beta * (m_c - m_r - o.simpo_gamma / o.beta);
      return -(1 - e) * log_s(x) - e * log_s(-x);
    }
    case Orpo: {
      const double odds =
          (m_c - m_r) - (std::log(1.0 - std::exp(m_c)) - std::log(1.0 - std::exp(m_r)));
      return -o.beta * log_s(odds);
    }
  }
  return NAN;
}

at::Tensor row(double a, double b) {
  return at::tensor({a, b}, at::kDouble).view({1, 2});
}

PairLoss loss_of(PreferenceLoss loss, const Numbers& n) {
  return pair_loss({row(n.chosen, n.rejected), row(n.chosen_length, n.rejected_length),
                    row(n.chosen_reference, n.rejected_reference)},
                   settings_of(loss));
}

std::vector<Numbers> cases_of(PreferenceLoss loss) {
  std::vector<Numbers> cases = {{-12.5, -30.25, 7, 19, -14.0, -29.0},
                                {-40.0, -11.0, 30, 5, -35.0, -16.5},
                                {-3.0, -3.5, 2, 3, -9.0, -1.0},
                                {-80.0, -2.0, 41, 3, -20.0, -70.0}};
  if (loss == Simpo || loss == Orpo) {
    for (Numbers& n : cases) n.chosen_reference = n.rejected_reference = 0.0;
  }
  return cases;
}

TEST(PairLoss, EachLossIsTheFormulaOfItsPaper) {
  for (const PreferenceLoss loss : kAll) {
    for (const Numbers& n : cases_of(loss)) {
      const double want = expected_loss(loss, n);
      EXPECT_NEAR(loss_of(loss, n).loss.item<double>(), want,
                  1e-12 * (1 + std::abs(want)))
          << static_cast<int>(loss);
    }
  }
}

/// The forms for devices without fp64, which lack log1p and expm1 as well.
TEST(PairLoss, OfSumsInFp32IsThatOfSumsInFp64) {
  const auto narrow = [](const at::Tensor& x) { return x.to(at::kFloat); };
  for (const PreferenceLoss loss : kAll) {
    std::vector<Numbers> cases = cases_of(loss);
    if (loss == Orpo) cases.push_back({-1e-6, -3.0, 1, 3});  // certain tokens
    for (const Numbers& n : cases) {
      const PairLoss want = loss_of(loss, n);
      const PairLoss got =
          pair_loss({narrow(row(n.chosen, n.rejected)),
                     narrow(row(n.chosen_length, n.rejected_length)),
                     narrow(row(n.chosen_reference, n.rejected_reference))},
                    settings_of(loss));
      SCOPED_TRACE(static_cast<int>(loss));
      EXPECT_EQ(got.loss.scalar_type(), at::kFloat);
      EXPECT_NEAR(got.loss.item<double>(), want.loss.item<double>(),
                  1e-5 * (1 + std::abs(want.loss.item<double>())));
      expect_close(got.slopes, want.slopes, 1e-5, "slopes");
      expect_close(got.rewards, want.rewards, 1e-6, "rewards");
    }
  }
}

TEST(PairLoss, TheSlopesAreTheDerivativesByBothSums) {
  constexpr double kStep = 1e-5;
  for (const PreferenceLoss loss : kAll) {
    for (const Numbers& n : cases_of(loss)) {
      const at::Tensor slopes = loss_of(loss, n).slopes;
      for (double Numbers::* side : {&Numbers::chosen, &Numbers::rejected}) {
        Numbers more = n, less = n;
        more.*side += kStep;
        less.*side -= kStep;
        const double want =
            (expected_loss(loss, more) - expected_loss(loss, less)) / (2.0 * kStep);
        const int64_t column = side == &Numbers::chosen ? 0 : 1;
        EXPECT_NEAR(slopes[0][column].item<double>(), want, 1e-8)
            << static_cast<int>(loss) << " side " << column;
      }
    }
  }
}

TEST(PairLoss, OfOddsIsFiniteForSidesThatAreCertain) {
  for (const double chosen : {0.0, -1e-12, -3.0}) {
    for (const double rejected : {0.0, -1e-12, -3.0}) {
      const PairLoss out = loss_of(Orpo, {chosen, rejected, 4, 4});
      EXPECT_TRUE(std::isfinite(out.loss.item<double>())) << chosen << ' ' << rejected;
      for (const int64_t side : {0, 1}) {
        EXPECT_TRUE(std::isfinite(out.slopes[0][side].item<double>()))
            << chosen << ' ' << rejected << " side " << side;
      }
    }
  }
  // Sides that are both certain have equal odds.
  EXPECT_NEAR(loss_of(Orpo, {0.0, 0.0, 4, 9}).loss.item<double>(), 0.3 * std::log(2.0),
              1e-12);
}

TEST(PairLoss, OfAModelThatIsItsReferenceIsLn2ToTheLastBit) {
  for (const PreferenceLoss loss : {Sigmoid, SigmoidNorm}) {
    for (const double sum : {-1.5, -123.456, -4000.1}) {
      const Numbers n = {sum, 2 * sum, 3, 5, sum, 2 * sum};
      EXPECT_EQ(loss_of(loss, n).loss.item<double>(), std::log(2.0));
      EXPECT_EQ(loss_of(loss, n).rewards.abs().sum().item<double>(), 0.0);
    }
  }
}

TEST(PairLoss, RewardsAndLogProbsAreThoseOfTrl) {
  const Numbers n = {-12.0, -30.0, 6, 20, -14.0, -29.0};
  const PairLoss dpo = loss_of(Ipo, n);
  EXPECT_TRUE(at::allclose(dpo.rewards, row(0.3 * 2.0, 0.3 * -1.0)));
  EXPECT_TRUE(at::equal(dpo.log_probs, row(-12.0, -30.0)));
  const PairLoss simpo = loss_of(Simpo, {-12.0, -30.0, 6, 20});
  EXPECT_TRUE(at::allclose(simpo.rewards, row(0.3 * -2.0, 0.3 * -1.5)));
  EXPECT_TRUE(at::equal(simpo.log_probs, row(-2.0, -1.5)));
}

TEST(PairLoss, ASumThatIsNoNumberGivesALossThatIsNone) {
  for (const PreferenceLoss loss : kAll) {
    EXPECT_TRUE(std::isnan(loss_of(loss, {NAN, -3.0, 2, 2}).loss.item<double>()))
        << static_cast<int>(loss);
  }
}

/// A batch of two rows with three pairs, prompts and padding, and a head for it.
struct Rows {
  static constexpr int64_t kSeq = 24, kFeatures = 16, kWords = 53;
  Batch batch;
  at::Tensor hidden, weight;

  explicit Rows(bool orpo) {
    at::manual_seed(7);
    batch.rows = 2;
    batch.seq = kSeq;
    hidden = at::randn({2 * kSeq, kFeatures});
    weight = at::randn({kWords, kFeatures});
    batch.sides = at::full({2 * kSeq}, 6, at::kLong);
    const at::Tensor next = at::randint(0, kWords, {2 * kSeq}, at::kLong);
    batch.targets = {at::full({2 * kSeq}, -100, at::kLong)};
    if (orpo) batch.targets.push_back(batch.targets[0].clone());
    // A side has a first position, the length of its prompt and an end. Its last position
    // predicts nothing.
    const std::vector<std::array<int64_t, 3>> sides = {
        {0, 2, 6}, {6, 2, 11}, {11, 3, 17}, {17, 3, 22}, {24, 4, 33}, {33, 4, 41}};
    for (size_t i = 0; i < sides.size(); ++i) {
      const auto [begin, prompt, end] = sides[i];
      batch.sides.slice(0, begin, end).fill_(static_cast<int64_t>(i));
      const int64_t first = begin + prompt - 1;
      batch.targets[0].slice(0, first, end - 1).copy_(next.slice(0, first, end - 1));
      if (!orpo || i % 2 != 0) continue;
      batch.targets[1].slice(0, begin, end - 1).copy_(next.slice(0, begin, end - 1));
    }
    batch.reference = at::tensor({-10.0, -12.0, -9.0, -8.0, -20.0, -17.0}).view({3, 2});
    batch.reference = batch.reference.to(at::kDouble);
    if (orpo) batch.reference.zero_();
  }
};

/// What the head made of Rows.
struct Found {
  std::vector<double> sums;
  at::Tensor by_hidden, by_weight, pair_sums;
};

Found run_head(const Rows& rows, PreferenceLoss loss, bool fused) {
  Tensors sums;
  ForwardContext context;
  context.batch = rows.batch;
  context.fused = fused;
  const size_t terms = rows.batch.targets.size();
  Losses losses(std::vector<double>{1.0 / 5.0, 1.0 / 41.0, 0, 0, 0, 0, 0});
  context.losses = &losses;
  context.pairs.settings = settings_of(loss);
  context.pairs.figures = terms;
  context.pairs.sums = &sums;
  const auto weight = bound(rows.weight);
  const at::Tensor hidden = leaf(rows.hidden);
  const at::Tensor root = loss_head(hidden, weight, context);
  torch::autograd::backward({root}, {});
  return {losses.sums(), hidden.grad(), weight->grad(), sums.at(0)};
}

/// Returns the same by autograd from all logits in fp64, with the slopes of pair_loss.
Found by_autograd(const Rows& rows, PreferenceLoss loss) {
  const at::Tensor hidden = leaf(rows.hidden.to(at::kDouble));
  const at::Tensor weight = leaf(rows.weight.to(at::kDouble));
  const at::Tensor logs = at::log_softmax(at::linear(hidden, weight), 1);
  const auto picked = [&](const at::Tensor& targets) {
    return logs.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1) * targets.ge(0);
  };
  const at::Tensor of_tokens = picked(rows.batch.targets[0]);
  std::vector<at::Tensor> by_side, lengths;
  for (int64_t side = 0; side < 6; ++side) {
    const at::Tensor mine = rows.batch.sides.eq(side);
    by_side.push_back((of_tokens * mine).sum());
    lengths.push_back((rows.batch.targets[0].ge(0) * mine).sum().to(at::kDouble));
  }
  const at::Tensor sums = at::stack(by_side).view({3, 2});
  const PairLoss pairs =
      pair_loss({sums.detach(), at::stack(lengths).view({3, 2}), rows.batch.reference},
                settings_of(loss));
  at::Tensor root = (sums * pairs.slopes).sum() / 5.0;
  Found found;
  found.sums = {pairs.loss.sum().item<double>()};
  if (loss == Orpo) {
    const at::Tensor nll = -picked(rows.batch.targets[1]).sum();
    root = root + nll / 41.0;
    found.sums.push_back(nll.item<double>());
  }
  torch::autograd::backward({root}, {});
  found.by_hidden = hidden.grad();
  found.by_weight = weight.grad();
  found.pair_sums = sums.detach();
  return found;
}

TEST(LossOfPairs, GradientsAreThoseOfAllLogits) {
  for (const PreferenceLoss loss : kAll) {
    const Rows rows(loss == Orpo);
    const Found want = by_autograd(rows, loss);
    for (const bool fused : {true, false}) {
      const Found found = run_head(rows, loss, fused);
      for (size_t i = 0; i < want.sums.size(); ++i) {
        EXPECT_NEAR(found.sums[i], want.sums[i], 2e-6 * std::abs(want.sums[i]));
      }
      expect_close(found.pair_sums, want.pair_sums, 1e-6, "sums");
      expect_close(found.by_hidden, want.by_hidden, 5e-6, "dh");
      expect_close(found.by_weight, want.by_weight, 5e-6, "dw");
    }
  }
}

TEST(LossOfPairs, FiguresAreSumsOverPairs) {
  const Rows rows(false);
  const Found found = run_head(rows, Sigmoid, true);
  const at::Tensor rewards = 0.3 * (found.pair_sums - rows.batch.reference);
  EXPECT_NEAR(found.sums[1], rewards.select(1, 0).sum().item<double>(), 1e-9);
  EXPECT_NEAR(found.sums[2], rewards.select(1, 1).sum().item<double>(), 1e-9);
  EXPECT_EQ(found.sums[3],
            rewards.select(1, 0).gt(rewards.select(1, 1)).sum().item<double>());
  EXPECT_NEAR(found.sums[4], found.pair_sums.select(1, 0).sum().item<double>(), 1e-9);
  EXPECT_NEAR(found.sums[5], found.pair_sums.select(1, 1).sum().item<double>(), 1e-9);
}

TEST(LossOfPairs, SumsOfAPairDoNotDependOnOtherRows) {
  const Rows rows(false);
  const at::Tensor both = run_head(rows, Sigmoid, true).pair_sums;
  Rows turned(false);  // the second row first
  const auto turn = [](const at::Tensor& x) {
    return at::cat({x.slice(0, Rows::kSeq), x.slice(0, 0, Rows::kSeq)});
  };
  turned.hidden = turn(rows.hidden);
  turned.batch.targets[0] = turn(rows.batch.targets[0]);
  const at::Tensor sides = turn(rows.batch.sides);
  turned.batch.sides = at::where(sides.eq(6), sides, (sides + 2) % 6);
  turned.batch.reference = rows.batch.reference.roll(1, 0);
  EXPECT_TRUE(at::equal(run_head(turned, Sigmoid, true).pair_sums, both.roll(1, 0)));
}

TEST(LossOfPairs, ARankWithThePairsOfAnotherCountsNone) {
  const Rows rows(true);
  Losses losses(std::vector<double>(7, 1.0));
  ForwardContext context;
  context.batch = rows.batch;
  context.losses = &losses;
  context.pairs.settings = settings_of(Orpo);
  context.pairs.figures = 2;
  context.pairs.counts = false;
  const at::NoGradGuard no_grad;
  loss_head(rows.hidden, bound(rows.weight), context);
  const std::vector<double> sums = losses.sums();
  EXPECT_EQ(sums[0], 0.0);
  EXPECT_GT(sums[1], 1.0);  // the tokens of the chosen sides are this rank's own
  for (size_t i = 2; i < sums.size(); ++i) EXPECT_EQ(sums[i], 0.0);
}

}  // namespace
}  // namespace longhaul::nn
