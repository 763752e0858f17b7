#pragma once

#include "longhaul/optim/kernels/adamw_kernel.h"
#include "longhaul/optim/lamb.h"

namespace longhaul::optim {

/// What lamb_moments and lamb_apply make of a step: neither looks at its convention.
AdamWScalars lamb_moments_scalars(const AdamWStep& step);
AdamWScalars lamb_apply_scalars(const AdamWStep& step);

/// What at_rate of element.h needs beside them, and at_rate itself.
LambRate lamb_rate(const AdamWStep& step);
AdamWScalars lamb_scalars_at(const AdamWScalars& s, const LambRate& of, double rate);

/// Both passes of a checked range, from their scalars and the weight decay.
LambSums lamb_moments_loop(const AdamWRange& range, const AdamWScalars& s, float decay,
                           int64_t update, Isa isa = best_isa());
void lamb_apply_loop(const AdamWRange& range, const AdamWScalars& s, int64_t update,
                     Isa isa = best_isa());

/// `s` of lamb_moments_scalars; `partial`: one for each block of kNormBlock elements;
/// `update`: for stochastic rounding.
void lamb_moments_avx2(const AdamWRange& range, const AdamWScalars& s, float decay,
                       int64_t update, LambSums* partial);
void lamb_moments_avx512(const AdamWRange& range, const AdamWScalars& s, float decay,
                         int64_t update, LambSums* partial);
void lamb_apply_avx2(const AdamWRange& range, const AdamWScalars& s, int64_t update);
void lamb_apply_avx512(const AdamWRange& range, const AdamWScalars& s, int64_t update);

}  // namespace longhaul::optim
