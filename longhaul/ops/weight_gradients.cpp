#include "longhaul/ops/weight_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <utility>

#include "longhaul/ops/fused.h"

namespace longhaul::ops {

void WeightGradients::push(ParameterPtr weight, LinearInput x, at::Tensor dy) {
  if (weight->frozen()) return;
  Entry entry{std::move(weight), std::move(x), std::move(dy)};
  if (!immediate_ && entry.x.x.defined()) {
    // Its graph would keep what the backward has done with: inputs, and their gradients.
    entry.x.x = entry.x.x.detach();
  }
  call([this, entry = std::move(entry)] { compute(entry); });
}

void WeightGradients::call(std::function<void()> between) {
  if (immediate_) return between();
  entries_.push_back(std::move(between));
}

void WeightGradients::drain() {
  const auto entries = std::exchange(entries_, {});
  for (const auto& entry : entries) entry();
}

void WeightGradients::compute(const Entry& entry) const {
  const at::Tensor x = entry.x.again ? entry.x.again->take() : entry.x.x;
  accumulate_weight_gradient(entry.weight->grad(), x, entry.dy);
  if (after_each_) after_each_();
}

namespace {

/// A product that cannot be added to the accumulator at once is made so many rows of the
/// weight at a time: in one piece that of an embedding is one more copy of the weights.
constexpr int64_t kPieceRows = 8192;

void accumulate_in_pieces(const at::Tensor& grad, const at::Tensor& x,
                          const at::Tensor& dy) {
  for (int64_t from = 0; from < grad.size(0); from += kPieceRows) {
    const int64_t rows = std::min(kPieceRows, grad.size(0) - from);
    // Contiguous, or the product would transpose it by a slow copy.
    const at::Tensor part = dy.narrow(1, from, rows).contiguous();
    grad.narrow(0, from, rows).add_(at::mm(part.t(), x));
  }
}

}  // namespace

void accumulate_weight_gradient(const at::Tensor& grad, const at::Tensor& x,
                                const at::Tensor& dy) {
  const at::NoGradGuard no_grad;
  at::Tensor target = grad;
  if (fused::accumulate_weight_gradient(target, x, dy)) return;
  if (target.scalar_type() == x.scalar_type()) {
    target.addmm_(dy.t(), x);
  } else if (target.is_cpu() && target.size(0) > kPieceRows) {
    accumulate_in_pieces(target, x, dy);
  } else {
    target.add_(at::mm(dy.t(), x));
  }
}

}  // namespace longhaul::ops
