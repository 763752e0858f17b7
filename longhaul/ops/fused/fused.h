#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "longhaul/families/layers/rms_form.h"
#include "longhaul/ops/common/dropout_draws.h"
#include "longhaul/ops/fused/operator.h"
#include "longhaul/ops/kernels/arguments.h"

// The fused forms of the operations. A fused form checks nothing that its operation has
// not checked, allocates nothing, and is called only where supports...() said yes.
// Tensors are contiguous unless a comment says otherwise.

namespace longhaul::ops::fused {

// ---- Operators that any device may have kernels for. This is their only declaration;
// fused_kernels.h makes kernels on raw pointers of them.

/// Norms x (rms_norm.h). `x` is [T, H], or [T, heads, H] with the last two dims
/// contiguous, so that x may be part of a wider matrix. `y` has the shape of x, and
/// `inverse_rms` is fp32 [T] or [T, heads]. `delta` [T, H] may be undefined. Where
/// `delta` is defined, x + delta is written to `sum` [T, H], and the sum is normed
/// instead of x.
inline constexpr Operator<"rms_norm_forward", In<"x">, In<"delta">, In<"weight">,
                          Argument<double, "eps">, Argument<RmsForm, "form">, Out<"sum">,
                          Out<"y">, Out<"inverse_rms">>
    rms_norm_forward{};
/// Computes dx, and adds to dweight, fp32 [H], unless dweight is undefined. dx may lie in
/// a wider matrix, as x may. `dsum` [T, H] is added to dx, unless dsum is undefined.
inline constexpr Operator<"rms_norm_backward", In<"dy">, In<"x">, In<"inverse_rms">,
                          In<"weight">, Argument<RmsForm, "form">, In<"dsum">, Out<"dx">,
                          Out<"dweight">>
    rms_norm_backward{};

/// Rotates x (rope.h). x and y are [T, heads, D] with the last dim contiguous, cos and
/// sin are fp32 [positions, D / 2], and positions is int32 [T].
inline constexpr Operator<"rope", In<"x">, In<"cos">, In<"sin">, In<"positions">,
                          Argument<bool, "inverse">, Out<"y">>
    rope{};

/// Computes y = activation(gate) * up. y and dy are [T, F]. gate and up have the same row
/// stride, and so have dgate and dup. `weights`, fp32 [T], may be undefined. Where they
/// are defined, each row is multiplied by its weight, and dweights is fp32 [T].
inline constexpr Operator<"gated_product_forward", In<"gate">, In<"up">, In<"weights">,
                          Argument<Activation, "activation">, Out<"y">>
    gated_product_forward{};
inline constexpr Operator<"gated_product_backward", In<"dy">, In<"gate">, In<"up">,
                          In<"weights">, Argument<Activation, "activation">, Out<"dgate">,
                          Out<"dup">, Out<"dweights">>
    gated_product_backward{};

/// Computes y[r] = x[row[r]]. x is [T, H], row int64 [R] and y [R, H].
inline constexpr Operator<"gather_rows", In<"x">, In<"row">, Out<"y">> gather_rows{};
/// Computes y[t] as the sum over i of x[place[t][i]], in ascending i and in fp32. x is
/// [R, H], place int64 [T, k] and y [T, H].
inline constexpr Operator<"sum_rows", In<"x">, In<"place">, Out<"y">> sum_rows{};

/// Computes the cross-entropy of each row. logits [R, V] are replaced by the scaled
/// gradient when `want_gradient` is set. targets is int64 [R]; cross_entropy and
/// squared_lse are fp32 [R], 0 where there is no target.
inline constexpr Operator<"cross_entropy", Out<"logits">, In<"targets">,
                          Argument<double, "scale">, Argument<double, "z_loss">,
                          Argument<bool, "want_gradient">, Out<"cross_entropy">,
                          Out<"squared_lse">>
    cross_entropy{};
/// Computes for each row, fp32 [R], the maximum, the sum of exp(logit - maximum), and the
/// logit of the target, or 0 where the target lies elsewhere. `logits` are [R, V];
/// `targets` is int64 [R], and a target outside of [0, V) lies in another part of the
/// vocabulary.
inline constexpr Operator<"cross_entropy_statistics", In<"logits">, In<"targets">,
                          Out<"maximum">, Out<"sum_exp">, Out<"picked">>
    cross_entropy_statistics{};
/// Computes logits = row_scale (softmax (1 + 2 z_loss lse) - onehot(target)) in place.
/// `lse`, fp32 [R], covers all parts of the vocabulary; `row_scale`, fp32 [R], is 0 where
/// there is no target.
inline constexpr Operator<"cross_entropy_gradient", Out<"logits">, In<"targets">,
                          In<"lse">, In<"row_scale">, Argument<double, "z_loss">>
    cross_entropy_gradient{};

// Products of the rows of experts. The rows of expert e are [offsets[e], offsets[e + 1]),
// where `offsets` is int32 [E + 1], and there may be none. The last dim of x, y and dy is
// contiguous. These operators are not in kOperators, since a CPU has those of grouped.h.
// CUDA has the gradient alone, and its product is LibTorch's product.

/// Computes y = x weights[e] for the rows of each expert, rounded once. x is [R, K], y
/// [R, N], and weights [E, K, N] with contiguous rows or columns.
inline constexpr Operator<"grouped_product", In<"x">, In<"offsets">, In<"weights">,
                          Out<"y">>
    grouped_product{};
/// Computes grad[e] = dy^T x over the rows of each expert, or with `add` adds this to
/// grad. dy is [R, N], x [R, K], and grad [E, N, K] with contiguous matrices. It is fp32
/// or has the dtype of x.
inline constexpr Operator<"grouped_gradient", In<"dy">, In<"x">, In<"offsets">,
                          Argument<bool, "add">, Out<"grad">>
    grouped_gradient{};

// The CPU has no kernels for the operators below: LibTorch's gelu is one pass there, its
// index_add_ is repeatable, and the attention of a CPU merges parts of the keys itself.

/// Computes the GELU. x, y, dy and dx have one shape; y may be x, and dx may be dy.
/// `tanh` chooses the tanh form.
inline constexpr Operator<"gelu_forward", In<"x">, Argument<bool, "tanh">, Out<"y">>
    gelu_forward{};
inline constexpr Operator<"gelu_backward", In<"dy">, In<"x">, Argument<bool, "tanh">,
                          Out<"dx">>
    gelu_backward{};

/// Computes grad[rows[i]] += dy[order[i]] for ascending i. grad is fp32 [V, H]; dy is
/// [T, H]; rows, int64 [T], ascends, and rows outside of [0, V) are left out; order is
/// int64 [T].
inline constexpr Operator<"embedding_gradient", In<"dy">, In<"rows">, In<"order">,
                          Out<"grad">>
    embedding_gradient{};

/// Merges a part of the keys into the result of an attention. `merged`, fp32 [B, n, Hq,
/// D], and `merged_lse`, fp32 [B, Hq, n], hold the result for the parts before, and
/// afterwards for this part too:
///   merged = merged e^(merged_lse - now) + part e^(part_lse - now),
/// where now is the new merged_lse. merged and merged_lse may be a run of queries of a
/// longer contiguous tensor; part [B, n, Hq, D] and part_lse are contiguous.
inline constexpr Operator<"merge_attention", In<"part">, In<"part_lse">, Out<"merged">,
                          Out<"merged_lse">>
    merge_attention{};

/// All operators above but the grouped ones.
inline constexpr std::tuple kOperators{rms_norm_forward,
                                       rms_norm_backward,
                                       rope,
                                       gated_product_forward,
                                       gated_product_backward,
                                       gather_rows,
                                       sum_rows,
                                       cross_entropy,
                                       cross_entropy_statistics,
                                       cross_entropy_gradient,
                                       gelu_forward,
                                       gelu_backward,
                                       embedding_gradient,
                                       merge_attention};

inline bool has_element_type(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
}

/// Returns whether each of these operators has a kernel for the device and the dtype of
/// `x`.
template <typename... Operators>
bool supports(const at::Tensor& x, const Operators&... operators) {
  return has_element_type(x) && (operators.serves(x) && ...);
}

// ---- Kernels of the CPU alone.

inline bool supports_dropout(const at::Tensor& x) {
  return x.is_cpu() && has_element_type(x);
}
/// Writes x [T, H] with some elements dropped to y [T, H]. y may be x.
void dropout(const at::Tensor& x, const Dropout& draws, const at::Tensor& y);

/// Returns whether product() takes these factors and is faster here than a library.
bool supports_product(const at::Tensor& a, const at::Tensor& b);

/// Computes y [M, N] = a [M, K] b [K, N] + bias [N], summed in fp32 and rounded once; the
/// bias may be undefined. Each factor has contiguous rows or contiguous columns.
void product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
             const at::Tensor& y);

/// Computes grad [N, K] = dy [T, N]^T x [T, K] or, with `add`, adds the product to grad.
/// `grad` is fp32 or has the compute dtype; nothing is rounded to the compute dtype in
/// between. Returns false, and does nothing, where there is no kernel for these tensors.
bool weight_gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& dy,
                     bool add);

}  // namespace longhaul::ops::fused
