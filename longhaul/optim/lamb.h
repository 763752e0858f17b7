#pragma once

#include "longhaul/optim/adamw.h"

namespace longhaul::optim {

/// Sums of squares in fp64: of masters, and of the directions that LAMB moves them in.
struct LambSums {
  double weight = 0.0;
  double update = 0.0;
};

// LAMB (You et al., "Large batch optimization for deep learning", 2020): the direction is
//   u = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * p
// and p -= lr * ratio * u with one ratio for a tensor, which follows from the norms of p
// and u. So an update has two passes with the ratios in between. u is not kept: the
// second pass forms it again from the moments.

/// The first pass: updates the moments of a range and returns the sums that they lead to,
/// added over blocks of kNormBlock in their order. The bits depend neither on threads nor
/// on the instruction set. step.lr and step.convention have no part in it, and the
/// masters stay. Uses OpenMP threads.
LambSums lamb_moments(const AdamWRange& range, const AdamWStep& step,
                      Isa isa = best_isa());

/// The second pass, from updated moments: moves masters by step.lr, which has the ratio
/// in it, and writes the weights. Gradients are not read.
void lamb_apply(const AdamWRange& range, const AdamWStep& step, Isa isa = best_isa());

/// ||p|| / ||u||, at most 1; 1 where either is 0.
double trust_ratio(const LambSums& sums);

}  // namespace longhaul::optim
