#include "longhaul/ops/weight_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>

#include <utility>

#include "longhaul/ops/fused.h"

namespace longhaul::ops {

void WeightGradients::push(ParameterPtr weight, at::Tensor x, at::Tensor dy) {
  if (weight->frozen()) return;
  if (immediate_) {
    accumulate_weight_gradient(weight->grad(), x, dy);
  } else {
    entries_.push_back({std::move(weight), std::move(x), std::move(dy)});
  }
}

void WeightGradients::drain() {
  const auto entries = std::exchange(entries_, {});
  for (const Entry& entry : entries) {
    accumulate_weight_gradient(entry.weight->grad(), entry.x, entry.dy);
  }
}

void accumulate_weight_gradient(const at::Tensor& grad, const at::Tensor& x,
                                const at::Tensor& dy) {
  const at::NoGradGuard no_grad;
  at::Tensor target = grad;
  if (fused::accumulate_weight_gradient(target, x, dy)) return;
  if (target.scalar_type() == x.scalar_type()) {
    target.addmm_(dy.t(), x);
  } else {
    target.add_(at::mm(dy.t(), x));
  }
}

}  // namespace longhaul::ops
