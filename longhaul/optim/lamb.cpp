#include "longhaul/optim/lamb.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "longhaul/optim/grad_norm.h"
#include "longhaul/optim/lamb_kernel.h"

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

LambSums lamb_moments(const AdamWRange& range, const AdamWStep& step, Isa isa) {
  check_range(range, step);
  const AdamWScalars s = lamb_moments_scalars(step);
  const auto decay = static_cast<float>(step.weight_decay);
  std::vector<LambSums> partial(
      static_cast<size_t>((range.count + kNormBlock - 1) / kNormBlock));
  if (isa != Isa::Avx2) {
    lamb_moments_avx512(range, s, decay, step.update, partial.data());
  } else {
    lamb_moments_avx2(range, s, decay, step.update, partial.data());
  }
  LambSums sums;
  for (const LambSums& block : partial) {
    sums.weight += block.weight;
    sums.update += block.update;
  }
  return sums;
}

void lamb_apply(const AdamWRange& range, const AdamWStep& step, Isa isa) {
  check_range(range, step);
  const AdamWScalars s = lamb_apply_scalars(step);
  if (isa != Isa::Avx2) {
    lamb_apply_avx512(range, s, step.update);
  } else {
    lamb_apply_avx2(range, s, step.update);
  }
}

double trust_ratio(const LambSums& sums) {
  if (!(sums.weight > 0.0 && sums.update > 0.0)) return 1.0;
  return std::min(1.0, std::sqrt(sums.weight) / std::sqrt(sums.update));
}

}  // namespace longhaul::optim
