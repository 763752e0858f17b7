#include "longhaul/optim/kernels/adamw_loop.h"
#include "longhaul/optim/kernels/lamb_loop.h"
#include "longhaul/optim/kernels/update_loops.h"

namespace longhaul::optim {

const UpdateLoops& avx2_updates() {
  static constexpr UpdateLoops kLoops{adamw_any, lamb_moments_any, lamb_apply_any};
  return kLoops;
}

}  // namespace longhaul::optim
