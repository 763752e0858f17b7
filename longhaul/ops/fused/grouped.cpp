#include "longhaul/ops/fused/grouped.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/fused/fused_kernels.h"
#include "longhaul/ops/kernels/cpu.h"

namespace longhaul::ops::fused {
namespace {

/// Returns whether the products are those of kernels::Product. Otherwise each expert is a
/// product of LibTorch, which is then faster.
bool products_are_own(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 && kernels::grouped_product_available();
}

/// Calls body(expert, first row, rows) for each expert.
template <typename Body>
void for_experts(const at::Tensor& offsets, const Body& body) {
  const auto* at = offsets.const_data_ptr<int32_t>();
  for (int64_t e = 0; e + 1 < offsets.size(0); ++e) body(e, at[e], at[e + 1] - at[e]);
}

}  // namespace

void grouped_product_on_cpu(const at::Tensor& x, const at::Tensor& offsets,
                            const at::Tensor& weights, const at::Tensor& y) {
  if (products_are_own(x)) {
    return kernels::run(kernels::GroupedProduct{.x = Memory(x),
                                                .x_stride = x.stride(0),
                                                .offsets = Memory(offsets),
                                                .experts = weights.size(0),
                                                .b = {Memory(weights), weights.stride(1),
                                                      weights.stride(2)},
                                                .b_stride = weights.stride(0),
                                                .K = x.size(1),
                                                .N = y.size(1),
                                                .y = Memory(y),
                                                .y_stride = y.stride(0)},
                        kernels::product_isa());
  }
  for_experts(offsets, [&](int64_t e, int64_t first, int64_t rows) {
    at::Tensor of_expert = y.narrow(0, first, rows);
    if (rows > 0) at::mm_out(of_expert, x.narrow(0, first, rows), weights.select(0, e));
  });
}

void grouped_gradient_on_cpu(const at::Tensor& dy, const at::Tensor& x,
                             const at::Tensor& offsets, bool add,
                             const at::Tensor& grad) {
  if (products_are_own(x)) {
    return kernels::run(kernels::GroupedGradient<kernels::Bf16>::of(
                            handed(dy), handed(x), handed(offsets), add, handed(grad)),
                        kernels::product_isa());
  }
  for_experts(offsets, [&](int64_t e, int64_t first, int64_t rows) {
    at::Tensor of_expert = grad.select(0, e);
    const at::Tensor d = dy.narrow(0, first, rows), in = x.narrow(0, first, rows);
    if (weight_gradient(of_expert, in, d, add)) return;
    if (!add) of_expert.zero_();
    if (rows == 0) return;
    if (of_expert.scalar_type() == in.scalar_type()) {
      of_expert.addmm_(d.t(), in);
    } else {
      of_expert.add_(at::mm(d.t(), in));
    }
  });
}

}  // namespace longhaul::ops::fused
