#include "longhaul/ops/fused/fused.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "longhaul/ops/fused/fused_kernels.h"
#include "longhaul/ops/kernels/cpu.h"

namespace longhaul::ops::fused {
namespace {

using kernels::Bf16;

template <template <typename> class... Listed>
void declare_all(torch::Library& library, kernels::KernelList<Listed...> /*list*/) {
  declare(library, op<Listed>...);
}

TORCH_LIBRARY(longhaul, library) {
  declare_all(library, kernels::Kernels());
  declare_all(library, kernels::KernelsOfGpus());
  declare(library, grouped_product);
}

// The CPU's kernels of grouped_product and grouped_gradient.

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

struct OnCpu {
  template <typename Kernel>
  static void run(const Kernel& kernel, at::Device /*device*/) {
    kernels::run(kernel);
  }
};

TORCH_LIBRARY_IMPL(longhaul, CPU, library) {
  implement_by_kernels<OnCpu>(library, kernels::Kernels());
  grouped_product.implement(library,
                            [](const auto&... all) { grouped_product_on_cpu(all...); });
  op<kernels::GroupedGradient>.implement(
      library, [](const auto&... all) { grouped_gradient_on_cpu(all...); });
}

bool is_bf16_matrix(const at::Tensor& x) {
  return x.is_cpu() && x.dim() == 2 && x.scalar_type() == at::kBFloat16 &&
         (x.stride(0) == 1 || x.stride(1) == 1);
}

kernels::MatrixInput matrix(const at::Tensor& x) {
  return {Memory(x), x.stride(0), x.stride(1)};
}

}  // namespace

void dropout(const at::Tensor& x, const Dropout& draws, const at::Tensor& y) {
  RECORD_FUNCTION("longhaul::dropout", {});
  with_type(x, [&]<typename T>(T) {
    kernels::run(kernels::Dropout<T>{Memory(x),
                                     Memory(draws.sequences),
                                     Memory(draws.index),
                                     x.size(0),
                                     x.size(1),
                                     {draws.key, draws.threshold(), draws.scale()},
                                     Memory(y),
                                     static_cast<uint32_t>(draws.first_column / 4)});
  });
}

bool supports_product(const at::Tensor& a, const at::Tensor& b) {
  // With fewer rows, as in the generation of a text, packing the other factor takes
  // longer than LibTorch's product.
  constexpr int64_t kFewestRows = 4;
  return kernels::product_available() && a.size(0) >= kFewestRows && is_bf16_matrix(a) &&
         is_bf16_matrix(b);
}

void product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
             const at::Tensor& y) {
  RECORD_FUNCTION("longhaul::product", std::vector<c10::IValue>({a, b}));
  kernels::run(kernels::Product{.a = matrix(a),
                                .b = matrix(b),
                                .M = a.size(0),
                                .K = a.size(1),
                                .N = b.size(1),
                                .y = Memory(y),
                                .bias = Memory(bias)},
               kernels::product_isa());
}

bool weight_gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& dy,
                     bool add) {
  if (!grad.is_contiguous() || !is_bf16_matrix(x) || !is_bf16_matrix(dy)) return false;
  const bool wide = grad.scalar_type() == at::kFloat;
  const bool in_rows = x.stride(1) == 1 && dy.stride(1) == 1;
  if (x.size(0) == 0) {  // the kernels do not take products of no tokens
    if (!add) grad.zero_();
    return true;
  }
  if (kernels::product_available()) {
    RECORD_FUNCTION("longhaul::weight_gradient", std::vector<c10::IValue>({dy.t(), x}));
    kernels::run(kernels::Product{.a = matrix(dy.t()),
                                  .b = matrix(x),
                                  .M = dy.size(1),
                                  .K = dy.size(0),
                                  .N = x.size(1),
                                  .y = Memory(wide ? at::Tensor() : grad),
                                  .add = add,
                                  .wide = Memory(wide ? grad : at::Tensor())},
                 kernels::product_isa());
    return true;
  }
  if (!wide || !in_rows || !kernels::weight_gradient_available()) return false;
  if (!add) grad.zero_();
  RECORD_FUNCTION("longhaul::weight_gradient", std::vector<c10::IValue>({dy.t(), x}));
  kernels::accumulate_weight_gradient(Memory(dy), dy.stride(0), Memory(x), x.stride(0),
                                      x.size(0), dy.size(1), x.size(1), Memory(grad));
  return true;
}

}  // namespace longhaul::ops::fused
