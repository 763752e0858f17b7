#pragma once

#include <cstdint>
#include <string_view>

#include "longhaul/config/run_config.h"
#include "longhaul/optim/update.h"
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
  int64_t update = 1;       ///< counts from 1: bias correction
};

/// One update of a range, in fp32 whatever the storage. Every element is computed by the
/// same IEEE operations, so the bits depend neither on the number of threads nor on the
/// instruction set. Uses OpenMP threads. A dtype that is not named above is refused.
void adamw_update(const AdamWRange& range, const AdamWStep& step, Isa isa = best_isa());

}  // namespace longhaul::optim
