#pragma once

#include <cstdint>

#include "longhaul/config/run_config.h"
#include "longhaul/optim/kernels/update.h"
#include "longhaul/system/isa.h"

namespace longhaul::optim {

struct AdamWStep {
  AdamConvention convention = AdamConvention::Torch;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double lr = 0.0;
  double weight_decay = 0.0;
  double grad_scale = 1.0;  ///< the clip coefficient
  int64_t update =
      1;  ///< the number of the update for the bias correction, counted from 1
};

AdamWScalars adamw_scalars(const AdamWStep& step);

/// Throws Error (Internal) for a dtype or a rounding that the loops do not know.
void check_range(const AdamWRange& range, int64_t update);

/// Makes one update of a checked range, in fp32 whatever the storage. Every element is
/// computed by the same IEEE operations, so the bits depend neither on the number of
/// threads nor on the instruction set. Uses OpenMP threads.
void adamw_loop(const AdamWRange& range, const AdamWScalars& s, int64_t update,
                system::Isa isa = system::best_isa());

}  // namespace longhaul::optim
