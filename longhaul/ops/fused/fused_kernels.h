#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/kernels/arguments.h"

// The operators of fused.h as kernels on raw pointers: the tensors become the arguments
// of a kernel, alike for every device that runs the kernels in its own memory.

namespace longhaul::ops::fused {

using at::Tensor;

/// Calls `run` with a value of the element type of x.
template <typename Run>
void with_type(const Tensor& x, const Run& run) {
  if (x.scalar_type() == at::kFloat) {
    run(float{});
  } else {
    run(kernels::Bf16{});
  }
}

/// The memory of a tensor as the pointer that an argument of a kernel is; null for an
/// undefined tensor.
class Memory {
 public:
  explicit Memory(const Tensor& x) : data_(x.defined() ? x.data_ptr() : nullptr) {}
  template <typename T>
  operator T*() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
};

/// The type of an operator, which chooses the overload of kernel_of().
template <const auto& kOperator>
using TypeOf = std::remove_cvref_t<decltype(kOperator)>;

/// The sizes of x [T, H], or [T, heads, H], whose tokens may lie apart.
struct RowsOf {
  explicit RowsOf(const Tensor& x)
      : tokens(x.size(0)),
        heads(x.dim() == 3 ? x.size(1) : 1),
        features(x.size(-1)),
        token_stride(x.stride(0)) {}
  int64_t tokens, heads, features, token_stride;
};

// kernel_of<T>(operator, arguments) is the kernel that computes the operator for elements
// of type T.

template <typename T>
kernels::RmsNormForward<T> kernel_of(TypeOf<rms_norm_forward>, const Tensor& x,
                                     const Tensor& delta, const Tensor& weight,
                                     double eps, RmsForm form, const Tensor& sum,
                                     const Tensor& y, const Tensor& inverse_rms) {
  const RowsOf rows(x);
  return {Memory(x),           rows.token_stride, Memory(weight), eps,
          rows.tokens,         rows.heads,        rows.features,  Memory(y),
          Memory(inverse_rms), Memory(delta),     Memory(sum),    form};
}

template <typename T>
kernels::RmsNormBackward<T> kernel_of(TypeOf<rms_norm_backward>, const Tensor& dy,
                                      const Tensor& x, const Tensor& inverse_rms,
                                      const Tensor& weight, RmsForm form,
                                      const Tensor& dsum, const Tensor& dx,
                                      const Tensor& dweight) {
  const RowsOf rows(x);
  return {Memory(dy),
          Memory(x),
          rows.token_stride,
          Memory(inverse_rms),
          Memory(weight),
          rows.tokens,
          rows.heads,
          rows.features,
          Memory(dx),
          dx.stride(0),
          Memory(dweight),
          Memory(dsum),
          form};
}

template <typename T>
kernels::Rope<T> kernel_of(TypeOf<rope>, const Tensor& x, const Tensor& cos,
                           const Tensor& sin, const Tensor& positions, bool inverse,
                           const Tensor& y) {
  return {Memory(x), x.stride(0), x.stride(1), x.size(0),         x.size(1),
          x.size(2), Memory(cos), Memory(sin), Memory(positions), inverse,
          Memory(y), y.stride(0), y.stride(1)};
}

template <typename T>
kernels::GatedProductForward<T> kernel_of(TypeOf<gated_product_forward>,
                                          const Tensor& gate, const Tensor& up,
                                          const Tensor& weights, Activation activation,
                                          const Tensor& y) {
  return {activation,   Memory(gate), Memory(up), gate.stride(0),
          gate.size(0), gate.size(1), Memory(y),  Memory(weights)};
}

template <typename T>
kernels::GatedProductBackward<T> kernel_of(TypeOf<gated_product_backward>,
                                           const Tensor& dy, const Tensor& gate,
                                           const Tensor& up, const Tensor& weights,
                                           Activation activation, const Tensor& dgate,
                                           const Tensor& dup, const Tensor& dweights) {
  return {activation,     Memory(dy),      Memory(gate),    Memory(up),
          gate.stride(0), gate.size(0),    gate.size(1),    Memory(dgate),
          Memory(dup),    dgate.stride(0), Memory(weights), Memory(dweights)};
}

template <typename T>
kernels::GatherRows<T> kernel_of(TypeOf<gather_rows>, const Tensor& x, const Tensor& row,
                                 const Tensor& y) {
  return {Memory(x), Memory(row), y.size(0), y.size(1), Memory(y)};
}

template <typename T>
kernels::SumRows<T> kernel_of(TypeOf<sum_rows>, const Tensor& x, const Tensor& place,
                              const Tensor& y) {
  return {Memory(x), Memory(place), y.size(0), place.size(1), y.size(1), Memory(y)};
}

template <typename T>
kernels::GroupedGradient<T> kernel_of(TypeOf<grouped_gradient>, const Tensor& dy,
                                      const Tensor& x, const Tensor& offsets, bool add,
                                      const Tensor& grad) {
  const bool wide = grad.scalar_type() == at::kFloat;
  return {.dy = Memory(dy),
          .dy_stride = dy.stride(0),
          .x = Memory(x),
          .x_stride = x.stride(0),
          .offsets = Memory(offsets),
          .experts = grad.size(0),
          .M = dy.size(1),
          .N = x.size(1),
          .y = Memory(wide ? Tensor() : grad),
          .wide = Memory(wide ? grad : Tensor()),
          .stride = grad.stride(0),
          .add = add};
}

template <typename T>
kernels::CrossEntropy<T> kernel_of(TypeOf<cross_entropy>, const Tensor& logits,
                                   const Tensor& targets, double scale, double z_loss,
                                   bool want_gradient, const Tensor& loss,
                                   const Tensor& squared_lse) {
  return {Memory(logits), Memory(targets), logits.size(0), logits.size(1),     scale,
          z_loss,         want_gradient,   Memory(loss),   Memory(squared_lse)};
}

template <typename T>
kernels::CrossEntropyStatistics<T> kernel_of(TypeOf<cross_entropy_statistics>,
                                             const Tensor& logits, const Tensor& targets,
                                             const Tensor& maximum, const Tensor& sum_exp,
                                             const Tensor& picked) {
  return {Memory(logits),  Memory(targets), logits.size(0), logits.size(1),
          Memory(maximum), Memory(sum_exp), Memory(picked)};
}

template <typename T>
kernels::CrossEntropyGradient<T> kernel_of(TypeOf<cross_entropy_gradient>,
                                           const Tensor& logits, const Tensor& targets,
                                           const Tensor& lse, const Tensor& row_scale,
                                           double z_loss) {
  return {Memory(logits), Memory(targets),   logits.size(0), logits.size(1),
          Memory(lse),    Memory(row_scale), z_loss};
}

template <typename T>
kernels::GeluForward<T> kernel_of(TypeOf<gelu_forward>, const Tensor& x, bool tanh,
                                  const Tensor& y) {
  return {Memory(x), x.numel(), tanh, Memory(y)};
}

template <typename T>
kernels::GeluBackward<T> kernel_of(TypeOf<gelu_backward>, const Tensor& dy,
                                   const Tensor& x, bool tanh, const Tensor& dx) {
  return {Memory(dy), Memory(x), x.numel(), tanh, Memory(dx)};
}

template <typename T>
kernels::EmbeddingGradient<T> kernel_of(TypeOf<embedding_gradient>, const Tensor& dy,
                                        const Tensor& rows, const Tensor& order,
                                        const Tensor& grad) {
  return {Memory(dy), Memory(rows), Memory(order), dy.size(0),
          dy.size(1), grad.size(0), Memory(grad)};
}

template <typename T>
kernels::MergeAttention<T> kernel_of(TypeOf<merge_attention>, const Tensor& part,
                                     const Tensor& part_lse, const Tensor& merged,
                                     const Tensor& merged_lse) {
  return {Memory(part),       Memory(part_lse),     part.size(0),        part.size(1),
          part.size(2),       part.size(3),         Memory(merged),      merged.stride(0),
          Memory(merged_lse), merged_lse.stride(0), merged_lse.stride(1)};
}

/// Gives `library` a kernel for the operator where Launch::run(kernel, device) takes it.
template <typename Launch, Text kName, typename... A>
void implement_by_kernel(torch::Library& library, const Operator<kName, A...>& op) {
  using Kernel =
      decltype(kernel_of<float>(op, std::declval<const typename A::Type&>()...));
  if constexpr (requires(const Kernel& kernel, at::Device on) {
                  Launch::run(kernel, on);
                }) {
    op.implement(library, [](const typename A::Type&... arguments) {
      const Tensor& x = first_tensor(arguments...);
      with_type(x, [&]<typename T>(T) {
        Launch::run(kernel_of<T>(Operator<kName, A...>{}, arguments...), x.device());
      });
    });
  }
}

/// Gives `library` every operator of fused.h that Launch::run(kernel, device) can run.
template <typename Launch>
void implement_by_kernels(torch::Library& library) {
  std::apply(
      [&](const auto&... operators) {
        (implement_by_kernel<Launch>(library, operators), ...);
      },
      kOperators);
}

}  // namespace longhaul::ops::fused
