#pragma once

#include "longhaul/optim/kernels/adamw.h"

namespace longhaul::optim {

/// Sums of squares in fp64: of masters, and of the directions in which LAMB moves the
/// masters.
struct LambSums {
  double weight = 0.0;
  double update = 0.0;
};

// The update of LAMB (You et al., "Large batch optimization for deep learning", 2020) has
// the direction
//   u = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * p
// The step is p -= lr * ratio * u. A tensor has one ratio, which follows from the norms
// of p and u. So an update has two passes, and the ratios are made between them. The
// first pass does not keep u. The second pass forms it again from the moments.

/// Returns ||p|| / ||u||, at most 1; 1 if either norm is 0.
double trust_ratio(const LambSums& sums);

/// Returns the scalars of LAMB's first pass. AdamWStep::convention has no effect on them.
AdamWScalars lamb_moments_scalars(const AdamWStep& step);
/// Returns the scalars of LAMB's second pass.
AdamWScalars lamb_apply_scalars(const AdamWStep& step);

/// Returns the numbers of a step from which at_rate (element.h) makes scalars for another
/// lr.
LambRate lamb_rate(const AdamWStep& step);
/// Returns the scalars `s` of the second pass with the lr multiplied by `rate`, as
/// at_rate of element.h does.
AdamWScalars lamb_scalars_at(const AdamWScalars& s, const LambRate& of, double rate);

/// Makes the first pass: updates the moments of a checked range and returns the LambSums
/// of the masters and of the directions that the new moments give. The sums are added
/// over blocks of kNormBlock in their order. The bits depend neither on threads nor on
/// the instruction set. The masters stay as they are. Uses OpenMP threads.
LambSums lamb_moments_loop(const AdamWRange& range, const AdamWScalars& s, float decay,
                           int64_t update, system::Isa isa = system::best_isa());
/// Makes the second pass from updated moments: moves masters and writes the weights.
/// Gradients are not read.
void lamb_apply_loop(const AdamWRange& range, const AdamWScalars& s, int64_t update,
                     system::Isa isa = system::best_isa());

}  // namespace longhaul::optim
