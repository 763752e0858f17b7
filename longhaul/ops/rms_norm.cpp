#include "longhaul/ops/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/linear/side_by_side.h"

namespace longhaul::ops {
namespace {

struct NormWeight {
  tensor::ParameterPtr weight;
  RmsForm form;

  /// Returns the factor of a normed element.
  at::Tensor factor() const {
    const at::Tensor& w = weight->weight();
    return form == RmsForm::OnePlusWeight ? w.to(at::kFloat) + 1.0 : w;
  }
};

/// The node y = x * factor in the dtype of x, for the composite form. A node of its own
/// keeps the weight of the parameter out of the graph.
struct ScaleNode : Function<ScaleNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, NormWeight scale) {
    ctx->save_for_backward({x});
    at::Tensor y = at::mul(x, scale.factor());
    save(ctx, std::move(scale));
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto& scale = saved<NormWeight>(ctx);
    const tensor::ParameterPtr& weight = scale.weight;
    const at::Tensor x = ctx->get_saved_variables()[0];
    if (!weight->frozen()) {
      at::Tensor grad = weight->grad();
      const at::Tensor rows =
          at::mul(grads[0].to(at::kFloat), x.to(at::kFloat)).reshape({-1, grad.size(0)});
      grad.add_(at::sum(rows, {0}));
    }
    return {at::mul(grads[0], scale.factor()), Variable()};
  }
};

/// Returns the composite form for x [.., H].
at::Tensor composite_norm(const at::Tensor& x, const NormWeight& scale, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor normal =
      wide * at::rsqrt(at::mean(wide * wide, {-1}, /*keepdim=*/true) + eps);
  if (scale.form == RmsForm::WeightAfterCast) {
    return ScaleNode::apply(normal.to(x.scalar_type()), scale);
  }
  return ScaleNode::apply(normal, scale).to(x.scalar_type());
}

using RmsNorm =
    fused::Operation<composite_norm, kernels::RmsNormForward, kernels::RmsNormBackward>;

struct Normed {
  at::Tensor y, inverse_rms, sum;
};

/// Norms x [T, H] or [T, heads, H], or x + delta; y is contiguous.
Normed normed(const at::Tensor& x, const NormWeight& scale, double eps,
              const at::Tensor& delta = {}) {
  Normed out{at::empty(x.sizes(), x.options()),
             at::empty(x.sizes().slice(0, static_cast<size_t>(x.dim() - 1)),
                       x.options().dtype(at::kFloat)),
             delta.defined() ? at::empty(x.sizes(), x.options()) : at::Tensor()};
  fused::op<kernels::RmsNormForward>(x, delta, scale.weight->weight(), eps, scale.form,
                                     out.sum, out.y, out.inverse_rms);
  return out;
}

/// Computes dx and adds the gradient of the weight. The kernel adds to fp32; a gradient
/// that is kept in bf16 is given the sum of the kernel, rounded once.
void norm_backward(const at::Tensor& dy, const at::Tensor& x,
                   const at::Tensor& inverse_rms, const NormWeight& scale, at::Tensor& dx,
                   const at::Tensor& dsum = {}) {
  at::Tensor grad = scale.weight->grad();
  const bool narrow = grad.defined() && grad.scalar_type() != at::kFloat;
  const at::Tensor sums =
      narrow ? at::zeros(grad.sizes(), grad.options().dtype(at::kFloat)) : grad;
  fused::op<kernels::RmsNormBackward>(dy.contiguous(), x, inverse_rms,
                                      scale.weight->weight(), scale.form, dsum, dx, sums);
  if (narrow) grad.add_(sums);
}

struct RmsNormNode : Function<RmsNormNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, NormWeight scale,
                            double eps) {
    const Normed out = normed(x, scale, eps);
    ctx->save_for_backward({x, out.inverse_rms});
    save(ctx, std::move(scale));
    return out.y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto tensors = ctx->get_saved_variables();
    at::Tensor dx = at::empty_like(tensors[0]);
    norm_backward(grads[0], tensors[0], tensors[1], saved<NormWeight>(ctx), dx);
    return {dx, Variable(), Variable()};
  }
};

struct ResidualSaved {
  NormWeight scale;
  bool adds;
};

struct ResidualNormNode : Function<ResidualNormNode> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& x,
                             const std::optional<at::Tensor>& delta, NormWeight scale,
                             double eps) {
    const Normed out = normed(x, scale, eps, delta.value_or(at::Tensor()));
    const at::Tensor sum = delta ? out.sum : x.detach();
    ctx->save_for_backward({sum, out.inverse_rms});
    save(ctx, ResidualSaved{std::move(scale), delta.has_value()});
    return {sum, out.y};
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto tensors = ctx->get_saved_variables();
    const auto& [scale, adds] = saved<ResidualSaved>(ctx);
    at::Tensor dx = at::empty_like(tensors[0]);
    norm_backward(grads[1], tensors[0], tensors[1], scale, dx, grads[0].contiguous());
    return {dx, adds ? dx : Variable(), Variable(), Variable()};
  }
};

struct HeadNormsSaved {
  HeadNorms norms;
  ColumnLayout layout;
};

struct HeadNormsNode : Function<HeadNormsNode> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& q,
                             const at::Tensor& k, const at::Tensor& v, HeadNorms norms) {
    const Normed of_q = normed(q, {norms.q, norms.form}, norms.eps);
    const Normed of_k = normed(k, {norms.k, norms.form}, norms.eps);
    ctx->save_for_backward({q, k, of_q.inverse_rms, of_k.inverse_rms});
    save(ctx, HeadNormsSaved{std::move(norms), ColumnLayout({q, k, v})});
    return {of_q.y, of_k.y, v.detach()};
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto& [norms, layout] = saved<HeadNormsSaved>(ctx);
    const auto t = ctx->get_saved_variables();
    tensor_list d = layout.empty(grads[0].options());
    for (const size_t i : {0, 1}) {
      norm_backward(grads[i], t[i], t[2 + i], {i == 0 ? norms.q : norms.k, norms.form},
                    d[i]);
    }
    layout.hand_on(2, grads[2], d);
    d.emplace_back();
    return d;
  }
};

void check_norm(const at::Tensor& x, int64_t dims, const tensor::ParameterPtr& weight) {
  LH_CHECK(x.dim() == dims && x.size(-1) == weight->slice().extent[0], "rms_norm",
           "{} has {} elements, the input's last dim {}", weight->name(),
           weight->slice().extent[0], x.size(-1));
}

/// Throws an internal Error unless the heads of a token follow each other in memory.
void check_heads(const at::Tensor& x) {
  LH_ASSERT(x.stride(2) == 1 && (x.size(1) == 1 || x.stride(1) == x.size(2)),
            "heads that do not follow each other");
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const tensor::ParameterPtr& weight, double eps,
                    bool fused, RmsForm form) {
  check_norm(x, 2, weight);
  if (!RmsNorm::has_kernels(fused, x)) return RmsNorm::composite(x, {weight, form}, eps);
  return RmsNormNode::apply(x.contiguous(), NormWeight{weight, form}, eps);
}

ResidualNorm residual_rms_norm(const at::Tensor& x, const at::Tensor& delta,
                               const tensor::ParameterPtr& weight, double eps, bool fused,
                               RmsForm form) {
  check_norm(x, 2, weight);
  LH_CHECK(!delta.defined() || delta.sizes() == x.sizes(), "rms_norm",
           "{} elements are added to {}", delta.numel(), x.numel());
  if (!RmsNorm::has_kernels(fused, x)) {
    const at::Tensor sum = delta.defined() ? x + delta : x;
    return {sum, RmsNorm::composite(sum, {weight, form}, eps)};
  }
  std::optional<at::Tensor> added;
  if (delta.defined()) added = delta.contiguous();
  const tensor_list out =
      ResidualNormNode::apply(x.contiguous(), added, NormWeight{weight, form}, eps);
  return {out[0], out[1]};
}

Heads rms_norm_heads(const Heads& heads, const HeadNorms& norms, bool fused) {
  const auto& [q, k, v] = heads;
  check_norm(q, 3, norms.q);
  check_norm(k, 3, norms.k);
  if (!RmsNorm::has_kernels(fused, q)) {
    // A norm of bf16 keeps fp32 copies of q and k. With a copy of v, nothing keeps the
    // matrix that all three are slices of.
    const bool copied = q.scalar_type() != at::kFloat;
    return {RmsNorm::composite(q, {norms.q, norms.form}, norms.eps),
            RmsNorm::composite(k, {norms.k, norms.form}, norms.eps),
            copied ? v.contiguous() : v};
  }
  check_heads(q);
  check_heads(k);
  const tensor_list out = HeadNormsNode::apply(q, k, v, norms);
  return {out[0], out[1], out[2]};
}

}  // namespace longhaul::ops
