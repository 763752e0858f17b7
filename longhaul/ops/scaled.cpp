#include "longhaul/ops/scaled.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>

namespace longhaul::ops {

at::Tensor scaled(const at::Tensor& x, double scale) {
  return scale == 1.0 ? x : x * scale;
}

double rounded_to(at::ScalarType type, double scale) {
  // torch.tensor(scale).to(type) goes through fp32 as well.
  return at::scalar_tensor(scale, at::kFloat).to(type).item<double>();
}

}  // namespace longhaul::ops
