#include "longhaul/optim/lamb.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "longhaul/optim/grad_norm.h"
#include "longhaul/optim/lamb_kernel.h"

namespace longhaul::optim {

LambSums lamb_moments(const AdamWRange& range, const AdamWStep& step, Isa isa) {
  check_range(range, step);
  AdamWStep direction = step;
  direction.convention = AdamConvention::Torch;
  direction.lr = 1.0;
  const AdamWScalars s = adamw_scalars(direction);
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
  AdamWStep move = step;
  move.convention = AdamConvention::Torch;
  if (isa != Isa::Avx2) {
    lamb_apply_avx512(range, adamw_scalars(move), step.update);
  } else {
    lamb_apply_avx2(range, adamw_scalars(move), step.update);
  }
}

double trust_ratio(const LambSums& sums) {
  if (!(sums.weight > 0.0 && sums.update > 0.0)) return 1.0;
  return std::min(1.0, std::sqrt(sums.weight) / std::sqrt(sums.update));
}

}  // namespace longhaul::optim
