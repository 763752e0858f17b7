#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/config/run_config.h"
#include "longhaul/tensor/flat_buffers.h"

namespace longhaul::train {

/// What the first update makes of a parameter's masters, and how far roundings may lead
/// from it: a function of the optimizer and of the dtypes of its state.
///
/// The gradient g follows from the first moment as it is stored, g = m / (1 - b1), and
/// with decay d the masters p become
///     convention torch, lamb:  p (1 - lr d) - lr g / (|g| + eps)
///     convention hf:          (p - lr g / (|g| + eps / sqrt(1 - b2))) (1 - lr d)
/// LAMB's lr has the tensor's trust ratio in it. Both optimizers compute in fp32, which
/// is a few roundings of 2^-24. Stored moments have the unit roundoff u: 2^-24 in fp32,
/// 2^-8 in bf16 rounded to the nearest, 2^-7 rounded stochastically. From m alone, g is
/// known to a factor 1 + u, and g / (|g| + eps) to u / 4. AdamW updates with moments that
/// are not rounded yet, LAMB with those that it has stored: |g| is the root of the second
/// one, wrong by u / 2, and g by u. So
///     |difference| <= 2^-24 (8 |p| + 64 lr) + c u lr,   c = 1/4 AdamW, 3/2 LAMB
/// and, where masters are bf16, 2^-7 of the result more: either neighbour is right.
class FirstUpdateRule {
 public:
  /// `lr`: the update's rate; `trust_ratio`: LAMB's of the tensor, 1 for AdamW.
  FirstUpdateRule(const OptimizerSection& optimizer, const DTypePolicy& policy,
                  const ParameterClass& kind, double lr, double trust_ratio);

  /// What loaded values and first moments m make of the masters; all fp64.
  at::Tensor masters(const at::Tensor& loaded, const at::Tensor& exp_avg) const;
  /// The differences of `found` from them, as shares of what is allowed; infinite where
  /// one is no number.
  at::Tensor shares(const at::Tensor& found, const at::Tensor& loaded,
                    const at::Tensor& exp_avg) const;

 private:
  bool frozen_;
  AdamConvention convention_;
  double beta1_;
  double eps_;  ///< beside |gradient|
  double lr_;
  double decay_;                ///< share of the element
  double moments_slack_ = 0.0;  ///< what rounded moments allow
  double master_slack_ = 0.0;   ///< of the result: what rounded masters allow
};

}  // namespace longhaul::train
