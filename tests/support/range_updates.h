#pragma once

#include "longhaul/optim/kernels/adamw.h"
#include "longhaul/optim/kernels/element.h"
#include "longhaul/optim/kernels/lamb.h"

namespace longhaul::optim {

/// Makes one update of a range, as the operator of a CPU does.
inline void adamw_update(const AdamWRange& range, const AdamWStep& step,
                         system::Isa isa = system::best_isa()) {
  check_range(range, step.update);
  adamw_loop(range, adamw_scalars(step), step.update, isa);
}

/// Makes the first pass of LAMB over a range.
inline LambSums lamb_moments(const AdamWRange& range, const AdamWStep& step,
                             system::Isa isa = system::best_isa()) {
  check_range(range, step.update);
  return lamb_moments_loop(range, lamb_moments_scalars(step),
                           static_cast<float>(step.weight_decay), step.update, isa);
}

/// Makes the second pass of LAMB from updated moments. step.lr includes the trust ratio.
inline void lamb_apply(const AdamWRange& range, const AdamWStep& step,
                       system::Isa isa = system::best_isa()) {
  check_range(range, step.update);
  lamb_apply_loop(range, lamb_apply_scalars(step), step.update, isa);
}

/// Returns the 16 random bits that are added below the bits that stay, by the definition
/// that the loops follow.
inline uint32_t rounding_bits(const Rounding& rounding, RoundingOf of, int64_t update,
                              int64_t number) {
  const RoundingKeys keys = rounding_keys(rounding.key, update, number >> 32);
  const auto low = static_cast<uint32_t>(number);
  return mixed(mixed(low + keys.of[of][0]) ^ keys.of[of][1]) >> 16;
}

}  // namespace longhaul::optim
