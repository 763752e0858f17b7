#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/config/run_config.h"
#include "longhaul/tensor/flat_buffers.h"

namespace longhaul::train {

/// What the first update makes of a parameter's masters, and how far rounding may lead
/// from it. Both are functions of the optimizer and of the dtypes of its state.
///
/// The gradient g follows from the first moment as it is stored, g = m / (1 - b1). With
/// decay d the masters p become
///     convention torch, lamb:  p (1 - lr d) - lr g / (|g| + eps)
///     convention hf:          (p - lr g / (|g| + eps / sqrt(1 - b2))) (1 - lr d)
/// LAMB's lr includes the tensor's trust ratio. Both optimizers compute in fp32, which
/// makes a few roundings of 2^-24. Stored moments have the unit roundoff u: 2^-24 in
/// fp32, 2^-8 in bf16 rounded to the nearest, 2^-7 rounded stochastically. From m alone,
/// g is known to a factor 1 + u, and g / (|g| + eps) to u / 4. AdamW updates with moments
/// that are not rounded yet. LAMB updates with the stored moments: |g| is the root of the
/// second moment, wrong by u / 2, and g is wrong by u. The difference is therefore
/// bounded:
///     |difference| <= 2^-24 (8 |p| + 64 lr) + c u lr,   c = 1/4 AdamW, 3/2 LAMB
/// Where masters are bf16, 2^-7 of the result is allowed in addition: either neighbour in
/// bf16 is right.
class FirstUpdateRule {
 public:
  /// `lr` is the learning rate of the update; `trust_ratio` is LAMB's ratio of the
  /// tensor, 1 for AdamW.
  FirstUpdateRule(const OptimizerSection& optimizer, const tensor::DTypePolicy& policy,
                  const tensor::ParameterClass& kind, double lr, double trust_ratio);

  /// Returns the masters after the update, from loaded values and first moments; all
  /// fp64.
  at::Tensor masters(const at::Tensor& loaded, const at::Tensor& exp_avg) const;
  /// Returns the differences of `found` from the expected masters, as shares of what is
  /// allowed; infinite where a value is not a number.
  at::Tensor shares(const at::Tensor& found, const at::Tensor& loaded,
                    const at::Tensor& exp_avg) const;

 private:
  bool frozen_;
  AdamConvention convention_;
  double beta1_;
  double eps_;  ///< added to |gradient| in the denominator
  double lr_;
  double decay_;                ///< share of the element that decay takes
  double moments_slack_ = 0.0;  ///< absolute difference that rounded moments allow
  double master_slack_ = 0.0;   ///< share of the result that rounded masters allow
};

}  // namespace longhaul::train
