#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "longhaul/ops/kernels/cpu.h"

// The operators of fused.cpp as kernels on raw pointers: tensors become the kernels'
// arguments, alike for every device that runs them in its memory.

namespace longhaul::ops::fused {

/// Memory of a tensor as the kernels' element type; null for an undefined one.
template <typename T>
T* pointer(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data_ptr()) : nullptr;
}

/// Calls `run` with a value of the element type.
template <typename Run>
void with_type(const at::Tensor& x, const Run& run) {
  if (x.scalar_type() == at::kFloat) {
    run(float{});
  } else {
    run(kernels::Bf16{});
  }
}

/// x [T, H], or [T, heads, H], whose tokens may lie apart.
struct RowsOf {
  explicit RowsOf(const at::Tensor& x)
      : tokens(x.size(0)),
        heads(x.dim() == 3 ? x.size(1) : 1),
        features(x.size(-1)),
        token_stride(x.stride(0)) {}
  int64_t tokens, heads, features, token_stride;
};

template <typename Launch>
void register_layers(torch::Library& library) {
  using at::Tensor;
  library.impl(
      "rms_norm_forward",
      [](const Tensor& x, const Tensor& delta, const Tensor& weight, double eps,
         int64_t form, const Tensor& sum, const Tensor& y, const Tensor& inverse_rms) {
        const RowsOf rows(x);
        with_type(x, [&]<typename T>(T) {
          Launch::run(
              kernels::RmsNormForward<T>{
                  pointer<T>(x), rows.token_stride, pointer<T>(weight), eps, rows.tokens,
                  rows.heads, rows.features, pointer<T>(y), pointer<float>(inverse_rms),
                  pointer<T>(delta), pointer<T>(sum), static_cast<RmsForm>(form)},
              x.device());
        });
      });
  library.impl("rms_norm_backward", [](const Tensor& dy, const Tensor& x,
                                       const Tensor& inverse_rms, const Tensor& weight,
                                       int64_t form, const Tensor& dsum, const Tensor& dx,
                                       const Tensor& dweight) {
    const RowsOf rows(x);
    with_type(x, [&]<typename T>(T) {
      Launch::run(
          kernels::RmsNormBackward<T>{
              pointer<T>(dy), pointer<T>(x), rows.token_stride,
              pointer<float>(inverse_rms), pointer<T>(weight), rows.tokens, rows.heads,
              rows.features, pointer<T>(dx), dx.stride(0), pointer<float>(dweight),
              pointer<T>(dsum), static_cast<RmsForm>(form)},
          x.device());
    });
  });
  library.impl("rope", [](const Tensor& x, const Tensor& cos, const Tensor& sin,
                          const Tensor& positions, bool inverse, const Tensor& y) {
    with_type(x, [&]<typename T>(T) {
      Launch::run(kernels::Rope<T>{pointer<T>(x), x.stride(0), x.stride(1), x.size(0),
                                   x.size(1), x.size(2), pointer<float>(cos),
                                   pointer<float>(sin), pointer<int32_t>(positions),
                                   inverse, pointer<T>(y), y.stride(0), y.stride(1)},
                  x.device());
    });
  });
  library.impl("gated_product_forward", [](const Tensor& gate, const Tensor& up,
                                           int64_t activation, const Tensor& y) {
    with_type(gate, [&]<typename T>(T) {
      Launch::run(kernels::GatedProductForward<T>{static_cast<Activation>(activation),
                                                  pointer<T>(gate), pointer<T>(up),
                                                  gate.stride(0), gate.size(0),
                                                  gate.size(1), pointer<T>(y)},
                  gate.device());
    });
  });
  library.impl("gated_product_backward", [](const Tensor& dy, const Tensor& gate,
                                            const Tensor& up, int64_t activation,
                                            const Tensor& dgate, const Tensor& dup) {
    with_type(gate, [&]<typename T>(T) {
      Launch::run(
          kernels::GatedProductBackward<T>{
              static_cast<Activation>(activation), pointer<T>(dy), pointer<T>(gate),
              pointer<T>(up), gate.stride(0), gate.size(0), gate.size(1),
              pointer<T>(dgate), pointer<T>(dup), dgate.stride(0)},
          gate.device());
    });
  });
}

template <typename Launch>
void register_losses(torch::Library& library) {
  using at::Tensor;
  library.impl("cross_entropy", [](const Tensor& logits, const Tensor& targets,
                                   double scale, double z_loss, bool want_gradient,
                                   const Tensor& cross_entropy,
                                   const Tensor& squared_lse) {
    with_type(logits, [&]<typename T>(T) {
      Launch::run(kernels::CrossEntropy<T>{pointer<T>(logits), pointer<int64_t>(targets),
                                           logits.size(0), logits.size(1), scale, z_loss,
                                           want_gradient, pointer<float>(cross_entropy),
                                           pointer<float>(squared_lse)},
                  logits.device());
    });
  });
  library.impl("cross_entropy_statistics",
               [](const Tensor& logits, const Tensor& targets, const Tensor& maximum,
                  const Tensor& sum_exp, const Tensor& picked) {
                 with_type(logits, [&]<typename T>(T) {
                   Launch::run(
                       kernels::CrossEntropyStatistics<T>{
                           pointer<T>(logits), pointer<int64_t>(targets), logits.size(0),
                           logits.size(1), pointer<float>(maximum),
                           pointer<float>(sum_exp), pointer<float>(picked)},
                       logits.device());
                 });
               });
  library.impl("cross_entropy_gradient", [](const Tensor& logits, const Tensor& targets,
                                            const Tensor& lse, const Tensor& row_scale,
                                            double z_loss) {
    with_type(logits, [&]<typename T>(T) {
      Launch::run(
          kernels::CrossEntropyGradient<T>{
              pointer<T>(logits), pointer<int64_t>(targets), logits.size(0),
              logits.size(1), pointer<float>(lse), pointer<float>(row_scale), z_loss},
          logits.device());
    });
  });
}

/// Gives `library` every operator, with Launch::run(kernel, device) to run its kernel.
template <typename Launch>
void register_kernels(torch::Library& library) {
  register_layers<Launch>(library);
  register_losses<Launch>(library);
}

}  // namespace longhaul::ops::fused
