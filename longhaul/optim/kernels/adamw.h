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

}  // namespace longhaul::optim
