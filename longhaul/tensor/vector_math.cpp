#include "longhaul/tensor/vector_math.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

namespace longhaul::tensor {

void warm_up_vector_math() {
  const at::NoGradGuard no_grad;
  // The list has all functions of aten/src/ATen/cpu/vml.h that call MKL, as LibTorch's
  // vms* and vmd* symbols show.
  using Function = at::Tensor (*)(const at::Tensor&);
  constexpr Function kFunctions[] = {
      at::acos, at::asin, at::atan,  at::cos, at::erf,  at::erfc, at::erfinv, at::exp,
      at::log,  at::log2, at::log10, at::sin, at::sqrt, at::tan,  at::tanh,   at::trunc};
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::full({1}, 0.5, type);
    for (const Function function : kFunctions) (void)function(x);
  }
}

}  // namespace longhaul::tensor
