#include "longhaul/optim/composite_updates.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>

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

at::Tensor lamb_direction(const AdamWTensors& t, const AdamWStep& step) {
  const auto [correction1, correction2] = BiasCorrections(step);
  const at::Tensor root = at::sqrt(t.exp_avg_sq.to(at::kFloat)) / std::sqrt(correction2);
  return t.exp_avg.to(at::kFloat) / correction1 / (root + step.eps) +
         t.master.to(at::kFloat) * step.weight_decay;
}

void lamb_moments_composite(const AdamWTensors& t, const AdamWStep& step,
                            const at::Tensor& sums, int64_t most) {
  for (const AdamWTensors& part : parts_of(t, most)) {
    CompositeMoments(part, step).store(part, step.update);
    add_squares_composite(part.master, sums.narrow(0, 0, 1));
    add_squares_composite(lamb_direction(part, step), sums.narrow(0, 1, 1));
  }
}

void lamb_apply_composite(const AdamWTensors& t, const AdamWStep& step,
                          const at::Tensor& rate, int64_t most) {
  const at::Tensor lr = (rate * step.lr).to(at::kFloat);
  for (const AdamWTensors& part : parts_of(t, most)) {
    const at::Tensor p = part.master.to(at::kFloat) - lamb_direction(part, step) * lr;
    store_composite(part.master, p, kRoundMaster, part, step.update);
    if (!part.rounding) part.weight.copy_(p);
  }
}

namespace {

constexpr int64_t kLow32 = 0xFFFFFFFF;

at::Tensor high_bits(const at::Tensor& x, int64_t from) { return x.__rshift__(from); }

/// Returns x * factor modulo 2^32; no intermediate needs more than 63 bits.
at::Tensor times(const at::Tensor& x, int64_t factor) {
  const at::Tensor low = (x & 0xFFFF) * factor;
  const at::Tensor high = ((high_bits(x, 16) * factor) & 0xFFFF) * 65536;
  return (low + high) & kLow32;
}

at::Tensor mixed_composite(const at::Tensor& x) {
  const at::Tensor once = times(x ^ high_bits(x, 16), 0x7FEB352D);
  const at::Tensor twice = times(once ^ high_bits(once, 15), 0x846CA68B);
  return twice ^ high_bits(twice, 16);
}

/// Returns the numbers of the elements in their tensor, ascending.
at::Tensor numbers(const ElementPlace& place, const at::Tensor& like) {
  const at::Tensor own = at::arange(place.begin, place.begin + like.numel(),
                                    like.options().dtype(at::kLong));
  const at::Tensor column = own.remainder(place.row);
  const at::Tensor run = (own - column).divide(place.row, "trunc");
  return run * place.stride + place.first + column;
}

}  // namespace

at::Tensor rounded_composite(const at::Tensor& x, const Rounding& rounding, RoundingOf of,
                             int64_t update) {
  const at::Tensor number = numbers(rounding.place, x);
  const int64_t begin = rounding.place.begin;
  const int64_t first = number_of(rounding.place, begin) >> 32;
  const int64_t last = number_of(rounding.place, begin + x.numel() - 1) >> 32;
  at::Tensor random;
  for (int64_t high = first; high <= last; ++high) {
    const RoundingKeys keys = rounding_keys(rounding.key, update, high);
    const at::Tensor once =
        mixed_composite((number + static_cast<int64_t>(keys.of[of][0])) & kLow32);
    const at::Tensor bits =
        high_bits(mixed_composite(once ^ static_cast<int64_t>(keys.of[of][1])), 16);
    random =
        high == first ? bits : at::where(high_bits(number, 32).eq(high), bits, random);
  }
  const at::Tensor bits = x.view(at::kInt).to(at::kLong) & kLow32;
  const at::Tensor rounded =
      high_bits(bits + random, 16).to(at::kShort).view(at::kBFloat16);
  return at::where(x.isnan(), x.to(at::kBFloat16), rounded);
}

void store_composite(const at::Tensor& into, const at::Tensor& x, RoundingOf of,
                     const AdamWTensors& t, int64_t update) {
  const bool random = t.rounding && into.scalar_type() == at::kBFloat16;
  into.copy_(random ? rounded_composite(x, *t.rounding, of, update) : x);
}

}  // namespace longhaul::optim
