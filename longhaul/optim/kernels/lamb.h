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

}  // namespace longhaul::optim
