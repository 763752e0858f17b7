#include "longhaul/ops/linear/products.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/kernels/cpu.h"

namespace longhaul::ops {

at::Tensor linear_product(const at::Tensor& x, const at::Tensor& w,
                          const at::Tensor& bias) {
  if (!fused::supports_product(x, w)) return at::linear(x, w, bias);
  at::Tensor y = at::empty({x.size(0), w.size(0)}, x.options());
  fused::product(x, w.t(), bias, y);
  return y;
}

at::Tensor product(const at::Tensor& dy, const at::Tensor& w) {
  if (!fused::supports_product(dy, w)) return at::mm(dy, w);
  at::Tensor y = at::empty({dy.size(0), w.size(1)}, dy.options());
  fused::product(dy, w, {}, y);
  return y;
}

void product_out(at::Tensor& y, const at::Tensor& dy, const at::Tensor& w) {
  if (fused::supports_product(dy, w) && y.is_contiguous()) {
    fused::product(dy, w, {}, y);
  } else {
    at::mm_out(y, dy, w);
  }
}

std::string describe_products(at::ScalarType type, at::Device device) {
  if (!device.is_cpu() || type != at::kBFloat16) return "LibTorch";
  if (kernels::product_available())
    return system::best_isa() == system::Isa::Amx ? "own, by AMX" : "own, in fp32";
  return kernels::weight_gradient_available() ? "LibTorch, weight gradients own"
                                              : "LibTorch";
}

}  // namespace longhaul::ops
