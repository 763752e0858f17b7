#include "longhaul/nn/pair_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>

#include <cmath>

#include "longhaul/base/error.h"

namespace longhaul::nn {
namespace {

/// A loss by the scores of both sides, and its derivatives by the scores.
struct ScoreLoss {
  at::Tensor loss, by_chosen, by_rejected;
};

/// Returns whether the sums are fp32, on a device without 64-bit numbers. It lacks log1p
/// and expm1 too.
bool is_narrow(const at::Tensor& y) { return y.scalar_type() == at::kFloat; }

/// Returns the log of the logistic function of y. LibTorch's own operator has no form for
/// devices without memory, on which a run is rehearsed.
at::Tensor log_logistic(const at::Tensor& y) {
  const at::Tensor rest = at::exp(-y.abs());
  return y.clamp_max(0.0) - (is_narrow(y) ? at::log(rest + 1.0) : at::log1p(rest));
}

/// Returns 1 - e^x, exact also near 0.
at::Tensor one_minus_exp(const at::Tensor& x) {
  if (!is_narrow(x)) return -at::expm1(x);
  const at::Tensor half = at::tanh(x * 0.5);
  return (half * -2.0) / (half * -1.0 + 1.0);
}

/// Returns (-(1 - |flipped|) log s(y) - flipped log s(-y)) / divisor, with s the logistic
/// function. The derivative of y by the chosen side's score is `slope`, by the other
/// side's score -slope.
ScoreLoss logistic(const at::Tensor& y, double slope, double flipped = 0.0,
                   double divisor = 1.0) {
  const double kept = 1.0 - std::abs(flipped);
  const at::Tensor loss = -(kept * log_logistic(y) + flipped * log_logistic(-y));
  const at::Tensor by_y = flipped * at::sigmoid(y) - kept * at::sigmoid(-y);
  const at::Tensor by_chosen = by_y * (slope / divisor);
  return {loss / divisor, by_chosen, -by_chosen};
}

/// A side whose tokens are certain has a score of 0 and infinite odds. Its score is taken
/// as this one, so that the loss and its derivatives are finite.
constexpr double kMostScore = -0x1p-24;

ScoreLoss odds_ratio(const at::Tensor& c, const at::Tensor& r, double beta) {
  const at::Tensor chosen = c.clamp_max(kMostScore), rejected = r.clamp_max(kMostScore);
  const at::Tensor no_chosen = one_minus_exp(chosen),
                   no_rejected = one_minus_exp(rejected);
  const at::Tensor y = (chosen - rejected) - (at::log(no_chosen) - at::log(no_rejected));
  const at::Tensor by_y = -beta * at::sigmoid(-y);
  return {-beta * log_logistic(y), by_y / no_chosen, -by_y / no_rejected};
}

ScoreLoss score_loss(const at::Tensor& c, const at::Tensor& r,
                     const PreferenceSection& settings) {
  const double beta = settings.beta;
  const double flipped = settings.label_smoothing;
  switch (*settings.loss) {
    case PreferenceLoss::Sigmoid:
    case PreferenceLoss::SigmoidNorm:
      return logistic(beta * (c - r), beta);
    case PreferenceLoss::Robust:
      return logistic(beta * (c - r), beta, -flipped, 1.0 - 2.0 * flipped);
    case PreferenceLoss::Simpo:
      return logistic(beta * (c - r) - settings.simpo_gamma, beta, flipped);
    case PreferenceLoss::Hinge: {
      const at::Tensor missing = 1.0 - beta * (c - r);
      const at::Tensor by_chosen = missing.gt(0.0).to(c.scalar_type()) * -beta;
      return {missing.clamp_min(0.0), by_chosen, -by_chosen};
    }
    case PreferenceLoss::Ipo: {
      const at::Tensor off = c - r - 1.0 / (2.0 * beta);
      return {off * off, 2.0 * off, -2.0 * off};
    }
    case PreferenceLoss::ApoZero: {
      const at::Tensor of_chosen = at::sigmoid(-beta * c);
      const at::Tensor of_rejected = at::sigmoid(beta * r);
      // One minus a number near 1 would have no digits of fp32.
      const bool narrow = is_narrow(c);
      const at::Tensor no_chosen = narrow ? at::sigmoid(beta * c) : 1.0 - of_chosen;
      const at::Tensor no_rejected = narrow ? at::sigmoid(-beta * r) : 1.0 - of_rejected;
      return {of_chosen + of_rejected, -beta * of_chosen * no_chosen,
              beta * of_rejected * no_rejected};
    }
    case PreferenceLoss::Orpo:
      return odds_ratio(c, r, beta);
  }
  LH_ASSERT(false, "a loss of pairs that is not known");
}

bool takes_means(PreferenceLoss loss) {
  using enum PreferenceLoss;
  return loss == Ipo || loss == SigmoidNorm || loss == Simpo || loss == Orpo;
}

}  // namespace

PairLoss pair_loss(const PairSums& sums, const PreferenceSection& settings) {
  const at::NoGradGuard no_grad;
  const bool means = takes_means(*settings.loss);
  const at::Tensor lengths = sums.lengths.clamp_min(1.0);
  const at::Tensor ratios = sums.log_probs - sums.reference;
  const at::Tensor scores = means ? ratios / lengths : ratios;
  const ScoreLoss by_score =
      score_loss(scores.select(1, 0), scores.select(1, 1), settings);
  PairLoss out;
  out.loss = by_score.loss;
  out.slopes = at::stack({by_score.by_chosen, by_score.by_rejected}, 1);
  if (means) out.slopes = out.slopes / lengths;
  const bool alone = !settings.has_reference();
  out.rewards = settings.beta * (alone ? scores : ratios);
  out.log_probs = alone ? scores : sums.log_probs;
  return out;
}

}  // namespace longhaul::nn
