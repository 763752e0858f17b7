#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/config/run_config.h"

namespace longhaul::nn {

/// What the loss of P pairs is made of, fp64 [P, 2]: column 0 is the chosen side, column
/// 1 the rejected one.
struct PairSums {
  at::Tensor log_probs;  ///< sums over the targets of each side
  at::Tensor lengths;    ///< the number of these targets
  at::Tensor reference;  ///< sums of the reference; zeros for a loss without one
};

/// The loss of P pairs and what is told of them. The tensors are fp32 if the sums are,
/// as on a device without 64-bit numbers.
struct PairLoss {
  at::Tensor loss;     ///< fp64 [P]
  at::Tensor slopes;   ///< the loss's derivative by PairSums::log_probs, fp64 [P, 2]
  at::Tensor rewards;  ///< fp64 [P, 2]
  at::Tensor
      log_probs;  ///< fp64 [P, 2]: means over targets for simpo and orpo, else sums
};

/// Returns the loss of each pair. With r = sum - reference of a side, m = r / length, and
/// s the logistic function, the losses are, as TRL defines them:
///
/// - sigmoid: -log s(beta (r_c - r_r)).
/// - robust: ((e - 1) log s(x) + e log s(-x)) / (1 - 2 e) for x = beta (r_c - r_r) and
///   e = label_smoothing.
/// - hinge: max(0, 1 - beta (r_c - r_r)).
/// - ipo: (m_c - m_r - 1 / (2 beta))^2.
/// - sigmoid_norm: -log s(beta (m_c - m_r)).
/// - apo_zero: 1 - s(beta r_c) + s(beta r_r).
/// - simpo: (e - 1) log s(x) - e log s(-x) for x = beta (m_c - m_r) - simpo_gamma.
/// - orpo: -beta log s(log odds(m_c) - log odds(m_r)), where odds(m) = e^m / (1 - e^m).
///   The mean loss of the chosen sides' tokens is another term.
///
/// A side without targets counts as one of length 1. Rewards are beta r, and beta m for
/// simpo and orpo. No gradient is recorded.
PairLoss pair_loss(const PairSums& sums, const PreferenceSection& settings);

}  // namespace longhaul::nn
