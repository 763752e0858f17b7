#include "longhaul/ops/loss_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/ops/fused.h"
#include "longhaul/ops/node.h"

// Shapes: T rows, K features, V vocabulary, R rows of a chunk.

namespace longhaul::ops {
namespace {

/// Logits of one chunk hold about this many elements.
constexpr int64_t kChunkElements = int64_t{1} << 24;

/// Per row of a chunk; `loss` and `z` are zero where there is no target. fp32 [R].
struct ChunkLoss {
  at::Tensor cross_entropy;
  at::Tensor squared_lse;
};

/// Replaces the logits by the gradient of the scaled loss when `want_gradient`.
ChunkLoss composite_chunk(at::Tensor& logits, const at::Tensor& targets,
                          const LossHeadOptions& options, bool want_gradient) {
  const at::Tensor wide = logits.to(at::kFloat);
  const at::Tensor lse = at::logsumexp(wide, 1);
  const at::Tensor valid = targets.ge(0);
  const at::Tensor index = targets.clamp_min(0).unsqueeze(1);
  const at::Tensor picked = at::gather(wide, 1, index).squeeze(1);
  const at::Tensor mask = valid.to(at::kFloat);
  ChunkLoss result{(lse - picked) * mask, lse * lse * mask};
  if (want_gradient) {
    at::Tensor p = at::exp(wide - lse.unsqueeze(1));
    p.mul_((1.0 + 2.0 * options.z_loss * lse).unsqueeze(1));
    p.scatter_add_(1, index, at::full_like(index, -1.0, p.options()));
    logits = p.mul_((mask * options.scale).unsqueeze(1)).to(logits.scalar_type());
  }
  return result;
}

struct HeadTotals {
  double cross_entropy = 0.0;
  double squared_lse = 0.0;
  at::Tensor dh;
};

HeadTotals run_chunks(const at::Tensor& h, const ParameterPtr& weight,
                      const at::Tensor& targets, const LossHeadOptions& options,
                      bool want_gradient) {
  const int64_t T = h.size(0);
  const int64_t rows =
      std::clamp<int64_t>(kChunkElements / weight->weight().size(0), 64, T);
  HeadTotals totals;
  if (want_gradient) totals.dh = at::empty_like(h);
  for (int64_t from = 0; from < T; from += rows) {
    const int64_t n = std::min(rows, T - from);
    const at::Tensor part = h.narrow(0, from, n);
    const at::Tensor labels = targets.narrow(0, from, n);
    at::Tensor logits = at::linear(part, weight->weight());
    ChunkLoss loss;
    if (options.fused && fused::supports(logits)) {
      loss.cross_entropy = at::empty({n}, h.options().dtype(at::kFloat));
      loss.squared_lse = at::empty_like(loss.cross_entropy);
      fused::cross_entropy(logits, labels, options.scale, options.z_loss, want_gradient,
                           loss.cross_entropy, loss.squared_lse);
    } else {
      loss = composite_chunk(logits, labels, options, want_gradient);
    }
    totals.cross_entropy += loss.cross_entropy.sum(at::kDouble).item<double>();
    totals.squared_lse += loss.squared_lse.sum(at::kDouble).item<double>();
    if (!want_gradient) continue;
    at::Tensor dpart = totals.dh.narrow(0, from, n);
    at::mm_out(dpart, logits, weight->weight());
    if (!weight->frozen()) accumulate_weight_gradient(weight->grad(), part, logits);
  }
  return totals;
}

struct LossHeadNode : Function<LossHeadNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& h,
                            ParameterPtr weight, const at::Tensor& targets,
                            LossHeadOptions options, HeadTotals* totals) {
    *totals = run_chunks(h, weight, targets, options, /*want_gradient=*/true);
    ctx->save_for_backward({std::move(totals->dh)});
    const double loss =
        options.scale * (totals->cross_entropy + options.z_loss * totals->squared_lse);
    return at::scalar_tensor(loss, h.options().dtype(at::kFloat));
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list /*ones*/) {
    return {ctx->get_saved_variables()[0], Variable(), Variable(), Variable(),
            Variable()};
  }
};

}  // namespace

LossHeadResult loss_head(const at::Tensor& h, const ParameterPtr& weight,
                         const at::Tensor& targets, const LossHeadOptions& options) {
  LH_CHECK(h.dim() == 2 && targets.dim() == 1 && targets.size(0) == h.size(0) &&
               targets.scalar_type() == at::kLong,
           "loss_head", "{} rows, {} targets", h.size(0), targets.numel());
  HeadTotals totals;
  at::Tensor loss;
  if (at::GradMode::is_enabled()) {
    LH_ASSERT(h.requires_grad(), "the head's input is not part of a graph");
    loss = LossHeadNode::apply(h, weight, targets, options, &totals);
  } else {
    totals = run_chunks(h, weight, targets, options, /*want_gradient=*/false);
    loss = at::scalar_tensor(
        options.scale * (totals.cross_entropy + options.z_loss * totals.squared_lse),
        h.options().dtype(at::kFloat));
  }
  return {loss, totals.cross_entropy};
}

}  // namespace longhaul::ops
