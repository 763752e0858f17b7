#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/families/rms_form.h"
#include "longhaul/ops/attention_mask.h"
#include "longhaul/ops/gated_product.h"

namespace longhaul::ops::fused {

// The fused forms of the operations on tensors: they check nothing that their operation
// has not checked, allocate nothing, and are called only where supports...() said yes.
// Everything is contiguous unless said otherwise.

enum class Form {
  RmsNorm,
  Rope,
  GatedProduct,
  Gelu,
  CrossEntropy,
  SplitCrossEntropy,
  EmbeddingGradient,
  MergeAttention
};
/// The form has kernels for this tensor's device and dtype. They are operators of
/// LibTorch's dispatcher (fused.cpp has their schemas), so that the library of a device
/// brings its own.
bool supports(Form form, const at::Tensor& x);
/// Head dims that the attention kernel takes.
bool supports_attention(const at::Tensor& q, int64_t head_dim);

/// x [T, H], or [T, heads, H] of which the last two dims are contiguous, so that it may
/// be part of a wider matrix; y the same; inverse_rms [T] or [T, heads] fp32. With
/// `delta` [T, H], which may be undefined, `sum` [T, H] becomes x + delta, and that is
/// normed.
void rms_norm_forward(const at::Tensor& x, const at::Tensor& delta,
                      const at::Tensor& weight, double eps, at::Tensor& sum,
                      at::Tensor& y, at::Tensor& inverse_rms,
                      RmsForm form = RmsForm::WeightAfterCast);
/// Adds to dweight [H] fp32. dx may lie as x may; `dsum` [T, H] is added to it, unless
/// undefined.
void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                       const at::Tensor& inverse_rms, const at::Tensor& weight,
                       const at::Tensor& dsum, at::Tensor& dx, const at::Tensor& dweight,
                       RmsForm form = RmsForm::WeightAfterCast);

/// x, y [T, heads, D], of which the last dim is contiguous; cos, sin [positions, D / 2]
/// fp32; positions [T] int32.
void rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
          const at::Tensor& positions, bool inverse, at::Tensor& y);

/// y, dy [T, F] contiguous; gate and up have one row stride, and dgate and dup.
void gated_product_forward(const at::Tensor& gate, const at::Tensor& up,
                           Activation activation, at::Tensor& y);
void gated_product_backward(const at::Tensor& dy, const at::Tensor& gate,
                            const at::Tensor& up, Activation activation,
                            at::Tensor& dgate, at::Tensor& dup);

/// x, y, dy, dx of one shape; y may be x, and dx dy. `tanh`: by its tanh form.
void gelu_forward(const at::Tensor& x, bool tanh, at::Tensor& y);
void gelu_backward(const at::Tensor& dy, const at::Tensor& x, bool tanh, at::Tensor& dx);

bool supports_dropout(const at::Tensor& x);
/// x, y [T, H]; y may be x.
void dropout(const at::Tensor& x, const Dropout& draws, at::Tensor& y);

/// q, out [B, S, Hq, D]; k, v [B, P + S, Hkv, D], the last two dims contiguous; lse
/// [B, Hq, S] fp32.
void attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const AttentionMask& mask, at::Tensor& out, at::Tensor& lse);
void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                        const at::Tensor& v, const AttentionMask& mask,
                        const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                        at::Tensor& dk, at::Tensor& dv);

/// One part of the keys: out [B, S, Hq, D] fp32 and lse go on from the parts before; dq,
/// dk, dv fp32 are added to. The last dim is contiguous, the others have any strides.
void attention_part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse);
void attention_part_backward(const AttentionPart& part, const at::Tensor& dout,
                             const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                             at::Tensor& dk, at::Tensor& dv);

/// logits [R, V], replaced by the scaled gradient when `want_gradient`; targets [R]
/// int64; cross_entropy, squared_lse [R] fp32, zero where there is no target.
void cross_entropy(at::Tensor& logits, const at::Tensor& targets, double scale,
                   double z_loss, bool want_gradient, at::Tensor& cross_entropy,
                   at::Tensor& squared_lse);

/// The two below are Form::SplitCrossEntropy.
/// logits [R, V]; targets [R] int64, outside of [0, V): in another part. Per row, fp32
/// [R]: the maximum, the sum of exp(logit - maximum), and the target's logit, or 0.
void cross_entropy_statistics(const at::Tensor& logits, const at::Tensor& targets,
                              at::Tensor& maximum, at::Tensor& sum_exp,
                              at::Tensor& picked);
/// logits = row_scale (softmax (1 + 2 z_loss lse) - onehot(target)), in place; `lse` [R]
/// over all parts, `row_scale` [R], 0 where there is no target; fp32.
void cross_entropy_gradient(at::Tensor& logits, const at::Tensor& targets,
                            const at::Tensor& lse, const at::Tensor& row_scale,
                            double z_loss);

/// grad[rows[i]] += dy[order[i]] for ascending i: grad [V, H] fp32; dy [T, H]; rows [T]
/// int64, ascending, of which those outside of [0, V) are left out; order [T] int64.
void embedding_gradient(const at::Tensor& dy, const at::Tensor& rows,
                        const at::Tensor& order, const at::Tensor& grad);

/// Takes a part of the keys into an attention's result: out [B, n, Hq, D] and lse
/// [B, Hq, n], fp32, hold it for the parts before and leave with this one,
/// out = out e^(lse - now) + part e^(part_lse - now). Each may be a run of queries of a
/// longer contiguous tensor; part [B, n, Hq, D] and part_lse are contiguous.
void merge_attention(const at::Tensor& part, const at::Tensor& part_lse, at::Tensor& out,
                     at::Tensor& lse);

/// Whether the function below takes these factors and beats a library here.
bool supports_product(const at::Tensor& a, const at::Tensor& b);

/// y [M, N] = a [M, K] b [K, N] + bias [N], which may be undefined: summed in fp32 and
/// rounded once. A factor has contiguous rows or columns, y is contiguous.
void product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
             at::Tensor& y);

/// grad [N, K], fp32 or of the compute dtype, = dy [T, N]^T x [T, K] or, with `add`, +=,
/// without rounding to the compute dtype in between; false: no such kernel here, nothing
/// done.
bool weight_gradient(at::Tensor& grad, const at::Tensor& x, const at::Tensor& dy,
                     bool add);

}  // namespace longhaul::ops::fused
