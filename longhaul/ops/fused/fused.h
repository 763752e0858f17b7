#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <utility>

#include "longhaul/ops/common/dropout_draws.h"
#include "longhaul/ops/fused/operator.h"
#include "longhaul/ops/kernels/arguments.h"
#include "longhaul/tensor/device_limits.h"

// The fused forms of the operations. A fused form relies on the checks of its operation,
// allocates nothing, and is called only if supports...() has returned true. Tensors are
// contiguous unless a comment says otherwise.

namespace longhaul::ops::fused {

// ---- Operators that any device may have kernels for.

/// The type of an operator's argument, where T is the type in the kernel's of(): a tensor
/// for an array of the kernel, else T itself.
template <typename T>
using Handed = std::conditional_t<std::is_base_of_v<kernels::Array, T>, at::Tensor, T>;

/// Returns the last word of the argument `index` in a list such as "In x, double eps".
constexpr Text<32> argument_name(std::string_view list, size_t index) {
  for (; index > 0; --index) list.remove_prefix(list.find(',') + 1);
  list = list.substr(0, list.find(','));
  char name[32] = {};
  std::ranges::copy(list.substr(list.rfind(' ') + 1), name);
  return name;
}

template <typename Kernel, typename... A, size_t... kIndex>
auto declared_operator(Kernel (*)(A...), std::index_sequence<kIndex...>)
    -> Operator<Text<sizeof Kernel::kName>(Kernel::kName),
                Argument<Handed<A>, argument_name(Kernel::kArguments, kIndex),
                         std::is_same_v<A, kernels::Out>>...>;
template <typename Kernel, typename... A>
auto declared_operator(Kernel (*of)(A...))
    -> decltype(declared_operator(of, std::index_sequence_for<A...>()));

/// The operator that LH_OPERATOR declares in a kernel (kernels/arguments.h). A call of
/// op<kernels::NAME> runs the kernel of the first tensor's device.
template <template <typename> class Kernel>
inline constexpr decltype(declared_operator(&Kernel<float>::of)) op{};

/// Computes y = x weights[e] for the rows of each expert, rounded once. x is [R, K], y
/// [R, N], and weights [E, K, N]. The last dim of x and y is contiguous, and matrices of
/// weights have contiguous rows or columns. The rows of expert e are [offsets[e],
/// offsets[e + 1]), where `offsets` is int32 [E + 1], and there may be none. Only a CPU
/// has a kernel for this operator (fused.cpp); a GPU runs LibTorch's grouped product.
inline constexpr Operator<"grouped_product", In<"x">, In<"offsets">, In<"weights">,
                          Out<"y">>
    grouped_product{};

inline bool has_element_type(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
}

/// Returns whether each of these operators has a kernel for the device and the dtype of
/// `x`. The kernels take int64, so that a device without 64-bit numbers has none.
template <typename... Operators>
bool supports(const at::Tensor& x, const Operators&... operators) {
  return has_element_type(x) && tensor::limits_of(x.device()).wide_types &&
         (operators.serves(x) && ...);
}

/// An operation: its composite form, the reference in ATen operations, and the kernels
/// that compute the operation instead on a device that has all of them.
template <auto kComposite, template <typename> class... Kernels>
struct Operation {
  static constexpr auto composite = kComposite;
  /// Returns whether `fused` is set, and all kernels take the device and the dtype of x.
  static bool has_kernels(bool fused, const at::Tensor& x) {
    return fused && supports(x, op<Kernels>...);
  }
};

// ---- Kernels of the CPU alone.

inline bool supports_dropout(const at::Tensor& x, const Dropout& draws) {
  return x.is_cpu() && has_element_type(x) && draws.first_column % 4 == 0 &&
         draws.sequences.scalar_type() == at::kLong;
}
/// Writes x [T, H] with some elements dropped to y [T, H]. y may be x.
void dropout(const at::Tensor& x, const Dropout& draws, const at::Tensor& y);

/// Returns whether product() takes these factors and is faster on this CPU than a
/// library.
bool supports_product(const at::Tensor& a, const at::Tensor& b);

/// Computes y [M, N] = a [M, K] b [K, N] + bias [N], summed in fp32 and rounded once; the
/// bias may be undefined. Each factor has contiguous rows or contiguous columns.
void product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
             const at::Tensor& y);

/// Computes grad [N, K] = dy [T, N]^T x [T, K] or, with `add`, adds the product to grad.
/// `grad` is fp32 or has the compute dtype; nothing is rounded to the compute dtype in
/// between. Returns false, and does nothing, if there is no kernel for these tensors.
bool weight_gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& dy,
                     bool add);

}  // namespace longhaul::ops::fused
