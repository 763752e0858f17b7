#include "longhaul/optim/adamw_composite.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sqrt.h>

#include <algorithm>
#include <cmath>

#include "longhaul/optim/rounding_composite.h"

namespace longhaul::optim {

CompositeMoments::CompositeMoments(const AdamWTensors& t, const AdamWStep& step) {
  const at::Tensor g = t.gradient.to(at::kFloat) * step.grad_scale;
  first = t.exp_avg.to(at::kFloat) * step.beta1 + g * (1.0 - step.beta1);
  second = t.exp_avg_sq.to(at::kFloat) * step.beta2 + g * g * (1.0 - step.beta2);
}

void CompositeMoments::store(const AdamWTensors& t, int64_t update) const {
  store_composite(t.exp_avg, first, kRoundExpAvg, t, update);
  store_composite(t.exp_avg_sq, second, kRoundExpAvgSq, t, update);
}

BiasCorrections::BiasCorrections(const AdamWStep& step)
    : first(1.0 - std::pow(step.beta1, static_cast<double>(step.update))),
      second(1.0 - std::pow(step.beta2, static_cast<double>(step.update))) {}

namespace {

void update_part(const AdamWTensors& t, const AdamWStep& step) {
  const auto [correction1, correction2] = BiasCorrections(step);
  const CompositeMoments moments(t, step);
  const auto& [m, v] = moments;
  at::Tensor p = t.master.to(at::kFloat);  // an fp32 master itself, else a copy in fp32
  if (step.convention == AdamConvention::Torch) {
    p.mul_(1.0 - step.lr * step.weight_decay);
    p.sub_(m / (at::sqrt(v) / std::sqrt(correction2) + step.eps) *
           (step.lr / correction1));
  } else {
    p.sub_(m / (at::sqrt(v) + step.eps) *
           (step.lr * std::sqrt(correction2) / correction1));
    p.mul_(1.0 - step.lr * step.weight_decay);
  }
  moments.store(t, step.update);
  if (t.rounding) {
    store_composite(t.master, p, kRoundMaster, t, step.update);
  } else if (t.weight.data_ptr() != p.data_ptr()) {
    t.weight.copy_(p);
  }
}

}  // namespace

std::vector<AdamWTensors> parts_of(const AdamWTensors& t, int64_t most) {
  if (most == 0) most = t.rounding ? kRoundedElements : kCompositeElements;
  std::vector<AdamWTensors> parts;
  for (int64_t begin = 0; begin < t.master.numel(); begin += most) {
    const int64_t size = std::min(most, t.master.numel() - begin);
    const auto cut = [&](const at::Tensor& x) { return x.narrow(0, begin, size); };
    parts.push_back({cut(t.gradient), cut(t.master), cut(t.exp_avg), cut(t.exp_avg_sq),
                     cut(t.weight), t.rounding});
    if (t.rounding) parts.back().rounding->place.begin += begin;
  }
  return parts;
}

void adamw_composite(const AdamWTensors& t, const AdamWStep& step, int64_t most) {
  for (const AdamWTensors& part : parts_of(t, most)) update_part(part, step);
}

void add_squares_composite(const at::Tensor& x, const at::Tensor& into) {
  for (int64_t begin = 0; begin < x.numel(); begin += kSquaresElements) {
    const int64_t size = std::min(kSquaresElements, x.numel() - begin);
    into.add_(x.narrow(0, begin, size).to(at::kDouble).square_().sum());
  }
}

}  // namespace longhaul::optim
