#include "longhaul/train/proof/first_update_rule.h"

#include <ATen/ATen.h>

#include <cmath>

namespace longhaul::train {
namespace {

/// Returns the unit roundoff of stored moments. Moments in bf16 are rounded
/// stochastically if the masters are bf16 too, which doubles the unit roundoff.
double roundoff_of_moments(const tensor::DTypePolicy& policy) {
  if (policy.moments != format::DType::BF16) return std::ldexp(1.0, -24);
  return std::ldexp(1.0, policy.master == format::DType::BF16 ? -7 : -8);
}

}  // namespace

FirstUpdateRule::FirstUpdateRule(const OptimizerSection& optimizer,
                                 const tensor::DTypePolicy& policy,
                                 const tensor::ParameterClass& kind, double lr,
                                 double trust_ratio)
    : frozen_(kind.frozen),
      convention_(optimizer.convention),
      beta1_(optimizer.betas[0]),
      eps_(optimizer.eps),
      lr_(lr * kind.lr_scale * trust_ratio),
      decay_(lr_ * kind.weight_decay) {
  if (convention_ == AdamConvention::Hf) eps_ /= std::sqrt(1.0 - optimizer.betas[1]);
  if (frozen_) return;
  const double u = roundoff_of_moments(policy);
  const bool stored_first = optimizer.kind == OptimizerKind::Lamb;
  moments_slack_ = (stored_first ? 1.5 : 0.25) * u * (1.0 + u) * lr_;
  if (policy.master == format::DType::BF16) master_slack_ = std::ldexp(1.0, -7);
}

at::Tensor FirstUpdateRule::masters(const at::Tensor& loaded,
                                    const at::Tensor& exp_avg) const {
  if (frozen_) return loaded;
  const at::Tensor g = exp_avg / (1.0 - beta1_);
  const at::Tensor step = lr_ * g / (g.abs() + eps_);
  if (convention_ == AdamConvention::Torch) return loaded * (1.0 - decay_) - step;
  return (loaded - step) * (1.0 - decay_);
}

at::Tensor FirstUpdateRule::shares(const at::Tensor& found, const at::Tensor& loaded,
                                   const at::Tensor& exp_avg) const {
  const at::Tensor expected = masters(loaded, exp_avg);
  const at::Tensor allowed = std::ldexp(1.0, -24) * (8.0 * loaded.abs() + 64.0 * lr_) +
                             moments_slack_ + master_slack_ * expected.abs() + 1e-42;
  return ((found - expected).abs() / allowed).nan_to_num(HUGE_VAL);
}

}  // namespace longhaul::train
