#include "longhaul/optim/kernels/adamw.h"

#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/optim/kernels/update_loops.h"

namespace longhaul::optim {
namespace {

void check_dtype(const char* what, format::DType dtype) {
  LH_CHECK(dtype == format::DType::F32 || dtype == format::DType::BF16, "optim",
           "AdamW: {} of {}; F32 and BF16 are known", what, format::dtype_name(dtype));
}

}  // namespace

AdamWScalars adamw_scalars(const AdamWStep& step) {
  const auto t = static_cast<double>(step.update);
  const double correction1 = 1.0 - std::pow(step.beta1, t);
  const double root_correction2 = std::sqrt(1.0 - std::pow(step.beta2, t));
  const bool torch = step.convention == AdamConvention::Torch;
  const double decay = step.lr * step.weight_decay;
  const double step_size = step.lr / correction1;
  const auto f = [](double x) { return static_cast<float>(x); };
  return {.grad_scale = f(step.grad_scale),
          .one_minus_beta1 = f(1.0 - step.beta1),
          .beta2 = f(step.beta2),
          .one_minus_beta2 = f(1.0 - step.beta2),
          .eps = f(step.eps),
          .keep = f(torch ? 1.0 - decay : 1.0),
          .denom_scale = f(torch ? root_correction2 : 1.0),
          .step_size = f(torch ? step_size : step_size * root_correction2),
          .decay_after = f(torch ? 0.0 : decay)};
}

void check_range(const AdamWRange& range, int64_t update) {
  check_dtype("gradients", range.grad_dtype);
  check_dtype("moments", range.moments_dtype);
  check_dtype("weights", range.weight_dtype);
  LH_CHECK(update >= 1, "optim", "AdamW: update = {}; updates count from 1", update);
  const bool shared = range.weight == range.master;
  LH_CHECK(
      range.rounding != nullptr || !shared || range.weight_dtype == format::DType::F32,
      "optim", "AdamW: a BF16 master is rounded stochastically or not at all{}", "");
  LH_CHECK(
      range.rounding == nullptr || (shared && range.weight_dtype == format::DType::BF16),
      "optim", "AdamW: stochastic rounding is for BF16 weights that are masters{}", "");
}

const UpdateLoops& updates_of(system::Isa isa) {
  return isa == system::Isa::Avx2 ? avx2_updates() : avx512_updates();
}

void adamw_loop(const AdamWRange& range, const AdamWScalars& s, int64_t update,
                system::Isa isa) {
  updates_of(isa).adamw(range, s, update);
}

}  // namespace longhaul::optim
