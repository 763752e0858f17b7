#pragma once

#include <cstdint>

#include "longhaul/optim/adamw.h"

namespace longhaul::optim {

/// The scalars of one update, rounded to fp32 once.
struct AdamWScalars {
  float grad_scale;
  float one_minus_beta1;
  float beta2, one_minus_beta2;
  float eps;
  float keep;         ///< torch: 1 - lr * decay, before the update; hf: 1
  float denom_scale;  ///< torch: sqrt(1 - beta2^t); hf: 1
  float step_size;    ///< torch: lr / (1 - beta1^t); hf: that * sqrt(1 - beta2^t)
  float decay_after;  ///< hf: lr * decay; torch: 0
};

AdamWScalars adamw_scalars(const AdamWStep& step);

/// Error (Internal) for what the loops do not know: see adamw_update.
void check_range(const AdamWRange& range, const AdamWStep& step);

/// `update`: for stochastic rounding.
void adamw_avx2(const AdamWRange& range, const AdamWScalars& s, int64_t update);
void adamw_avx512(const AdamWRange& range, const AdamWScalars& s, int64_t update);

}  // namespace longhaul::optim
