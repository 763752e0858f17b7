#pragma once

#include "longhaul/optim/adamw_kernel.h"
#include "longhaul/optim/lamb.h"

namespace longhaul::optim {

/// `s` of lr = 1; `partial`: one for each block of kNormBlock elements; `update`: for
/// stochastic rounding.
void lamb_moments_avx2(const AdamWRange& range, const AdamWScalars& s, float decay,
                       int64_t update, LambSums* partial);
void lamb_moments_avx512(const AdamWRange& range, const AdamWScalars& s, float decay,
                         int64_t update, LambSums* partial);
void lamb_apply_avx2(const AdamWRange& range, const AdamWScalars& s, int64_t update);
void lamb_apply_avx512(const AdamWRange& range, const AdamWScalars& s, int64_t update);

}  // namespace longhaul::optim
