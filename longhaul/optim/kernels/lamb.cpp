#include "longhaul/optim/kernels/lamb.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "longhaul/optim/kernels/element.h"
#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/optim/kernels/update_loops.h"

namespace longhaul::optim {

AdamWScalars lamb_moments_scalars(const AdamWStep& step) {
  AdamWStep direction = step;
  direction.lr = 1.0;
  return lamb_apply_scalars(direction);
}

AdamWScalars lamb_apply_scalars(const AdamWStep& step) {
  AdamWStep move = step;
  move.convention = AdamConvention::Torch;
  return adamw_scalars(move);
}

LambRate lamb_rate(const AdamWStep& step) {
  const double correction1 = 1.0 - std::pow(step.beta1, static_cast<double>(step.update));
  return {step.lr, step.weight_decay, correction1};
}

AdamWScalars lamb_scalars_at(const AdamWScalars& s, const LambRate& of, double rate) {
  return at_rate(s, of, rate);
}

LambSums lamb_moments_loop(const AdamWRange& range, const AdamWScalars& s, float decay,
                           int64_t update, system::Isa isa) {
  std::vector<LambSums> partial(static_cast<size_t>(norm_blocks(range.count)));
  updates_of(isa).lamb_moments(range, s, decay, update, partial.data());
  LambSums sums;
  for (const LambSums& block : partial) {
    sums.weight += block.weight;
    sums.update += block.update;
  }
  return sums;
}

void lamb_apply_loop(const AdamWRange& range, const AdamWScalars& s, int64_t update,
                     system::Isa isa) {
  updates_of(isa).lamb_apply(range, s, update);
}

double trust_ratio(const LambSums& sums) {
  if (!(sums.weight > 0.0 && sums.update > 0.0)) return 1.0;
  return std::min(1.0, std::sqrt(sums.weight) / std::sqrt(sums.update));
}

}  // namespace longhaul::optim
