#include "longhaul/ops/weight_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>

#include <utility>

#include "longhaul/ops/fused.h"

namespace longhaul::ops {

void WeightGradients::push(ParameterPtr weight, LinearInput x, at::Tensor dy) {
  if (weight->frozen()) return;
  Entry entry{std::move(weight), std::move(x), std::move(dy)};
  if (immediate_) {
    compute(entry);
  } else {
    entries_.push_back(std::move(entry));
  }
}

void WeightGradients::drain() {
  const auto entries = std::exchange(entries_, {});
  for (const Entry& entry : entries) compute(entry);
}

void WeightGradients::compute(const Entry& entry) const {
  const at::Tensor x = entry.x.again ? entry.x.again->take() : entry.x.x;
  accumulate_weight_gradient(entry.weight->grad(), x, entry.dy);
  if (after_each_) after_each_();
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
