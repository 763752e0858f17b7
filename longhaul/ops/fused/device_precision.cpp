#include "longhaul/ops/fused/device_precision.h"

#include <ATen/Context.h>

namespace longhaul::ops {
namespace {

/// Forbids sums in reduced precision. Splitting a sum stays allowed in versions of
/// LibTorch that tell splitting and reduced precision apart.
template <typename Context>
void forbid_reduced_sums(Context& context) {
  if constexpr (requires { context.setAllowBF16ReductionCuBLAS(false, true); }) {
    context.setAllowBF16ReductionCuBLAS(false, true);
    context.setAllowFP16ReductionCuBLAS(false, true);
  } else {
    context.setAllowBF16ReductionCuBLAS(false);
    context.setAllowFP16ReductionCuBLAS(false);
  }
}

}  // namespace

void set_device_precision() { forbid_reduced_sums(at::globalContext()); }

}  // namespace longhaul::ops
