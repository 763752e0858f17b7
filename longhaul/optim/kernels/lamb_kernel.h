#pragma once

#include "longhaul/optim/kernels/adamw_kernel.h"
#include "longhaul/optim/kernels/lamb.h"

namespace longhaul::optim {

/// Returns the scalars of the first pass. The convention of the step does not matter.
AdamWScalars lamb_moments_scalars(const AdamWStep& step);
/// Returns the scalars of the second pass.
AdamWScalars lamb_apply_scalars(const AdamWStep& step);

/// Returns what at_rate of element.h needs besides the scalars.
LambRate lamb_rate(const AdamWStep& step);
/// Returns the result of at_rate of element.h.
AdamWScalars lamb_scalars_at(const AdamWScalars& s, const LambRate& of, double rate);

/// Makes the first pass: updates the moments of a checked range and returns the sums that
/// the moments lead to, added over blocks of kNormBlock in their order. The bits depend
/// neither on threads nor on the instruction set. The masters stay. Uses OpenMP threads.
LambSums lamb_moments_loop(const AdamWRange& range, const AdamWScalars& s, float decay,
                           int64_t update, system::Isa isa = system::best_isa());
/// Makes the second pass from updated moments: moves masters and writes the weights.
/// Gradients are not read.
void lamb_apply_loop(const AdamWRange& range, const AdamWScalars& s, int64_t update,
                     system::Isa isa = system::best_isa());

}  // namespace longhaul::optim
