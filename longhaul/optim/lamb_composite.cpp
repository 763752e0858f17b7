#include "longhaul/optim/lamb_composite.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sqrt.h>

#include <cmath>

#include "longhaul/optim/rounding_composite.h"

namespace longhaul::optim {
namespace {

/// Returns m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * p.
at::Tensor direction(const AdamWTensors& t, const AdamWStep& step) {
  const auto [correction1, correction2] = BiasCorrections(step);
  const at::Tensor root = at::sqrt(t.exp_avg_sq.to(at::kFloat)) / std::sqrt(correction2);
  return t.exp_avg.to(at::kFloat) / correction1 / (root + step.eps) +
         t.master.to(at::kFloat) * step.weight_decay;
}

}  // namespace

void lamb_moments_composite(const AdamWTensors& t, const AdamWStep& step,
                            const at::Tensor& sums, int64_t most) {
  for (const AdamWTensors& part : parts_of(t, most)) {
    CompositeMoments(part, step).store(part, step.update);
    add_squares_composite(part.master, sums.narrow(0, 0, 1));
    add_squares_composite(direction(part, step), sums.narrow(0, 1, 1));
  }
}

void lamb_apply_composite(const AdamWTensors& t, const AdamWStep& step,
                          const at::Tensor& rate, int64_t most) {
  const at::Tensor lr = (rate * step.lr).to(at::kFloat);
  for (const AdamWTensors& part : parts_of(t, most)) {
    const at::Tensor p = part.master.to(at::kFloat) - direction(part, step) * lr;
    store_composite(part.master, p, kRoundMaster, part, step.update);
    if (!part.rounding) part.weight.copy_(p);
  }
}

}  // namespace longhaul::optim
