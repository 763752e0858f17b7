#include "longhaul/ops/loss_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/linear/products.h"
#include "longhaul/ops/narrow/loss.h"

// Shapes: T rows, K features, V vocabulary, R rows of a chunk.

namespace longhaul::ops {
namespace {

/// The loss of each row of a chunk, fp32 [R]; 0 if there is no target.
struct ChunkLoss {
  at::Tensor cross_entropy;
  at::Tensor squared_lse;
};

/// Makes fp32 [R] of any content.
at::Tensor row_values(const at::Tensor& logits) {
  return at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
}

/// Where the logits of the targets lie in a part of the vocabulary that begins at
/// `begin`.
struct LocalTargets {
  LocalTargets(const at::Tensor& targets, int64_t begin, int64_t columns)
      : elsewhere((targets - begin).lt(0).logical_or((targets - begin).ge(columns))),
        index((targets - begin).masked_fill(elsewhere, 0).unsqueeze(1)) {}
  at::Tensor elsewhere;  ///< [R] bool
  at::Tensor index;      ///< [R, 1], 0 elsewhere
};

/// Returns the scale of the gradient with respect to h W^T + b, which is divided by
/// logits_divisor to give the logits. The slope of a cap is multiplied in afterwards.
double gradient_scale(const LossHeadOptions& options) {
  return options.scale / options.logits_divisor;
}

/// Returns the scale of the gradient of each row, fp32 [R]; 0 where `mask` is 0.
/// `weights` are those of the rows, or undefined.
at::Tensor row_scale(const at::Tensor& mask, const at::Tensor& weights,
                     const LossHeadOptions& options) {
  const at::Tensor scale = mask * gradient_scale(options);
  return weights.defined() ? scale * weights : scale;
}

/// Returns row_scale (softmax (1 + 2 z_loss lse) - onehot(target)), fp32.
at::Tensor composite_gradient(const at::Tensor& wide, const at::Tensor& lse,
                              const LocalTargets& local, const at::Tensor& row_scale,
                              double z_loss) {
  at::Tensor p = at::exp(wide - lse.unsqueeze(1));
  p.mul_((1.0 + 2.0 * z_loss * lse).unsqueeze(1));
  p.scatter_add_(1, local.index, local.elsewhere.to(at::kFloat).sub_(1.0).unsqueeze(1));
  return p.mul_(row_scale.unsqueeze(1));
}

/// Computes the composite form, for the whole vocabulary or a part that begins at
/// `begin`. Holds `rows` rows in fp32 at once. With `want_gradient` the gradient of the
/// scaled loss replaces the logits: in place, unless all rows are taken at once.
ChunkLoss composite_chunk(at::Tensor& logits, const at::Tensor& targets,
                          const at::Tensor& weights, int64_t begin,
                          const LossHeadOptions& options, bool want_gradient,
                          int64_t rows) {
  const int64_t R = logits.size(0);
  at::Tensor lse = row_values(logits), picked = row_values(logits);
  at::Tensor wide;
  const auto each = [&](const auto& take) {
    for (int64_t from = 0; from < R; from += rows) {
      const int64_t n = std::min(rows, R - from);
      if (n < R || !wide.defined()) wide = logits.narrow(0, from, n).to(at::kFloat);
      take(from, n, LocalTargets(targets.narrow(0, from, n), begin, logits.size(1)));
    }
  };
  each([&](int64_t from, int64_t n, const LocalTargets& local) {
    lse.narrow(0, from, n).copy_(at::logsumexp(wide, 1));
    picked.narrow(0, from, n)
        .copy_(at::gather(wide, 1, local.index)
                   .squeeze(1)
                   .masked_fill_(local.elsewhere, 0.0));
  });
  if (options.combine) options.combine(lse, picked);
  const at::Tensor mask = targets.ge(0).to(at::kFloat);
  ChunkLoss result{(lse - picked) * mask, lse * lse * mask};
  if (!want_gradient) return result;
  const at::Tensor scales = row_scale(mask, weights, options);
  each([&](int64_t from, int64_t n, const LocalTargets& local) {
    const at::Tensor gradient = composite_gradient(
        wide, lse.narrow(0, from, n), local, scales.narrow(0, from, n), options.z_loss);
    if (n < R) {
      logits.narrow(0, from, n).copy_(gradient);
    } else {
      logits = gradient.to(logits.scalar_type());
    }
  });
  return result;
}

/// Computes the composite form for a device without 64-bit numbers, all rows at once. The
/// gradient is a new tensor in the place of the logits.
ChunkLoss narrow_chunk(at::Tensor& logits, const at::Tensor& targets,
                       const at::Tensor& weights, int64_t begin,
                       const LossHeadOptions& options, bool want_gradient) {
  const at::Tensor wide = logits.to(at::kFloat);
  const narrow::TargetColumns columns(targets, begin, logits.size(1));
  at::Tensor lse = narrow::log_sum_exp(wide), picked = columns.picked(wide);
  if (options.combine) options.combine(lse, picked);
  const at::Tensor mask = targets.ge(0).to(at::kFloat);
  ChunkLoss result{(lse - picked) * mask, lse * lse * mask};
  if (want_gradient) {
    logits =
        columns.gradient(wide, lse, row_scale(mask, weights, options), options.z_loss)
            .to(logits.scalar_type());
  }
  return result;
}

using CrossEntropy = fused::Operation<composite_chunk, kernels::CrossEntropy>;
using SplitCrossEntropy =
    fused::Operation<composite_chunk, kernels::CrossEntropyStatistics,
                     kernels::CrossEntropyGradient>;

/// Computes the fused form for a whole vocabulary, which passes over a row once, while
/// the row is in cache.
ChunkLoss fused_chunk(at::Tensor& logits, const at::Tensor& targets,
                      const LossHeadOptions& options, bool want_gradient) {
  ChunkLoss loss{row_values(logits), row_values(logits)};
  fused::op<kernels::CrossEntropy>(logits, targets, gradient_scale(options),
                                   options.z_loss, want_gradient, loss.cross_entropy,
                                   loss.squared_lse);
  return loss;
}

/// Computes the fused form for a part of the vocabulary that begins at `begin`, or for
/// rows with weights.
ChunkLoss fused_split_chunk(at::Tensor& logits, const at::Tensor& targets,
                            const at::Tensor& weights, int64_t begin,
                            const LossHeadOptions& options, bool want_gradient) {
  const at::Tensor local = targets - begin;
  at::Tensor maximum = row_values(logits), lse = row_values(logits),
             picked = row_values(logits);
  fused::op<kernels::CrossEntropyStatistics>(logits, local, maximum, lse, picked);
  lse.log_().add_(maximum);
  if (options.combine) options.combine(lse, picked);
  const at::Tensor mask = targets.ge(0).to(at::kFloat);
  ChunkLoss result{(lse - picked) * mask, lse * lse * mask};
  if (want_gradient) {
    fused::op<kernels::CrossEntropyGradient>(
        logits, local, lse, row_scale(mask, weights, options), options.z_loss);
  }
  return result;
}

/// Computes the loss of each row of a chunk. `weights` are those of the rows, or
/// undefined; they are in the gradient and not yet in the result.
ChunkLoss chunk_loss(at::Tensor& logits, const at::Tensor& targets,
                     const at::Tensor& weights, int64_t begin,
                     const LossHeadOptions& options, bool want_gradient) {
  if (narrow::is_on_narrow_device(logits)) {
    return narrow_chunk(logits, targets, weights, begin, options, want_gradient);
  }
  const bool plain = !options.combine && !weights.defined();
  if (plain && CrossEntropy::has_kernels(options.fused, logits)) {
    return fused_chunk(logits, targets, options, want_gradient);
  }
  if (!plain && SplitCrossEntropy::has_kernels(options.fused, logits)) {
    return fused_split_chunk(logits, targets, weights, begin, options, want_gradient);
  }
  // On a device the fp32 copies of the composite form, several times the chunk, are made
  // for fewer rows at a time. The weights are not read again for that, since the product
  // is already there.
  constexpr int64_t kFewest = 64;
  const int64_t rows = logits.is_cpu() ? logits.size(0)
                                       : logits_rows(logits.size(0), logits.size(1),
                                                     kLogitsElements, kFewest);
  return CrossEntropy::composite(logits, targets, weights, begin, options, want_gradient,
                                 rows);
}

/// Returns the rows of a chunk. With a split vocabulary this number follows from the size
/// of the whole vocabulary, so that all ranks agree.
int64_t chunk_rows(const tensor::Parameter& weight, const at::Tensor& h,
                   const LossHeadOptions& options) {
  const int64_t vocabulary =
      options.combine ? weight.slice().global_shape[0] / options.vocabulary_parts + 1
                      : weight.slice().extent[0];
  int64_t elements =
      h.is_cpu() ? kLogitsElements : options.device_logits_bytes / h.element_size();
  // The fp32 copies of a chunk lie side by side there.
  if (narrow::is_on_narrow_device(h)) elements /= 8;
  return logits_rows(h.size(0), vocabulary, elements);
}

/// The gradient of h, and sums over all rows. The sums are fp64 scalars on the device of
/// the logits, so that the host does not wait for the device. On a device without 64-bit
/// numbers they are sums of blocks (narrow::block_sums).
struct HeadTotals {
  at::Tensor cross_entropy;
  at::Tensor squared_lse;
  at::Tensor dh;
};

at::Tensor sum_of(const at::Tensor& rows) {
  return narrow::is_on_narrow_device(rows) ? narrow::block_sums(rows)
                                           : rows.sum(at::kDouble);
}

/// The totals of the chunks so far.
class ChunkTotals {
 public:
  /// `h` is the input of the head. dh is formed with `want_gradient` only.
  ChunkTotals(const at::Tensor& h, bool want_gradient)
      : in_parts_(narrow::is_on_narrow_device(h)) {
    if (in_parts_) return;
    const auto fp64 = h.options().dtype(at::kDouble);
    totals_ = {at::zeros({}, fp64), at::zeros({}, fp64), {}};
    if (want_gradient) totals_.dh = at::empty_like(h);
  }

  void add(const ChunkLoss& loss) {
    if (in_parts_) {
      cross_entropy_.push_back(sum_of(loss.cross_entropy));
      squared_lse_.push_back(sum_of(loss.squared_lse));
    } else {
      totals_.cross_entropy.add_(sum_of(loss.cross_entropy));
      totals_.squared_lse.add_(sum_of(loss.squared_lse));
    }
  }

  /// Forms the gradient of rows [from, from + n) of h from the gradient of their logits.
  void form_gradient(int64_t from, int64_t n, const at::Tensor& dlogits,
                     const at::Tensor& weight) {
    if (in_parts_) return dh_.push_back(product(dlogits, weight));
    at::Tensor rows = totals_.dh.narrow(0, from, n);
    product_out(rows, dlogits, weight);
  }

  HeadTotals take() {
    if (!in_parts_) return std::move(totals_);
    const at::Tensor dh = dh_.empty() ? at::Tensor() : at::cat(dh_);
    return {at::cat(cross_entropy_), at::cat(squared_lse_), dh};
  }

 private:
  /// Whether the parts are put together at the end, where a device cannot write them into
  /// the whole.
  bool in_parts_;
  HeadTotals totals_;
  std::vector<at::Tensor> cross_entropy_, squared_lse_, dh_;
};

/// Makes the logits of one chunk of rows after another, in order, and calls
/// `take(from, n, logits, bounded)`, which may overwrite them. `bounded` is tanh(x /
/// cap), or undefined where the logits are not capped.
template <typename Take>
void each_chunk(const at::Tensor& h, const tensor::ParameterPtr& weight,
                const LossHeadOptions& options, const Take& take) {
  const int64_t T = h.size(0);
  const int64_t rows = chunk_rows(*weight, h, options);
  for (int64_t from = 0; from < T; from += rows) {
    const int64_t n = std::min(rows, T - from);
    at::Tensor logits =
        linear_product(h.narrow(0, from, n), weight->weight(),
                       options.bias ? options.bias->weight() : at::Tensor());
    if (options.logits_divisor != 1.0) logits.div_(options.logits_divisor);
    at::Tensor bounded;  // between -1 and 1
    if (options.logits_cap != 0.0) {
      bounded = logits.div_(options.logits_cap).tanh_();
      logits = bounded * options.logits_cap;
    }
    take(from, n, logits, bounded);
  }
}

HeadTotals run_chunks(const at::Tensor& h, const tensor::ParameterPtr& weight,
                      const at::Tensor& targets, const LossHeadOptions& options,
                      bool want_gradient) {
  const int64_t begin = weight->slice().offset[0];
  ChunkTotals totals(h, want_gradient);
  each_chunk(h, weight, options,
             [&](int64_t from, int64_t n, at::Tensor& logits, const at::Tensor& bounded) {
               at::Tensor weights;
               if (options.row_weights.defined())
                 weights = options.row_weights.narrow(0, from, n);
               const ChunkLoss loss = chunk_loss(logits, targets.narrow(0, from, n),
                                                 weights, begin, options, want_gradient);
               if (weights.defined()) {
                 loss.cross_entropy.mul_(weights);
                 loss.squared_lse.mul_(weights);
               }
               totals.add(loss);
               if (!want_gradient) return;
               if (bounded.defined()) at::tanh_backward_out(logits, logits, bounded);
               totals.form_gradient(from, n, logits, weight->weight());
               if (!weight->frozen()) {
                 accumulate_weight_gradient({weight}, h.narrow(0, from, n), logits);
               }
               if (options.bias && !options.bias->frozen()) {
                 at::Tensor grad = options.bias->grad();
                 grad.add_(at::sum(logits, {0}, /*keepdim=*/false, at::kFloat));
               }
             });
  return totals.take();
}

/// Returns the root of the backward, an fp32 scalar.
at::Tensor total_of(const HeadTotals& totals, const LossHeadOptions& options) {
  if (narrow::is_on_narrow_device(totals.cross_entropy)) {
    const at::Tensor squares = totals.squared_lse.sum() * options.z_loss;
    return (totals.cross_entropy.sum() + squares) * options.scale;
  }
  return at::add(totals.cross_entropy, totals.squared_lse, options.z_loss)
      .mul_(options.scale)
      .to(at::kFloat);
}

/// Hands on the gradient that was formed with the loss.
struct LossHeadNode : Function<LossHeadNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& /*x*/,
                            const at::Tensor& loss, const at::Tensor& dx) {
    ctx->save_for_backward({dx});
    return loss.detach();
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& /*ones*/) {
    return {ctx->get_saved_variables()[0], Variable(), Variable()};
  }
};

/// Makes the root of the backward from what totals_of(want_gradient) returns, whose
/// gradient dh is that of x.
template <typename TotalsOf>
LossHeadResult result_of(const at::Tensor& x, const LossHeadOptions& options,
                         const TotalsOf& totals_of) {
  const bool want_gradient = at::GradMode::is_enabled();
  const at::NoGradGuard no_grad;
  const HeadTotals totals = totals_of(want_gradient);
  at::Tensor loss = total_of(totals, options);
  if (want_gradient) {
    const at::AutoGradMode grad_mode(true);
    loss = LossHeadNode::apply(x, loss, totals.dh);
  }
  return {loss, totals.cross_entropy};
}

HeadTotals totals_of(const at::Tensor& logits, const at::Tensor& targets,
                     const LossHeadOptions& options, bool want_gradient) {
  at::Tensor gradient = logits;  // replaced, not overwritten
  const ChunkLoss loss =
      narrow::is_on_narrow_device(logits)
          ? narrow_chunk(gradient, targets, {}, 0, options, want_gradient)
          : composite_chunk(gradient, targets, {}, 0, options, want_gradient,
                            logits.size(0));
  return {sum_of(loss.cross_entropy), sum_of(loss.squared_lse), gradient};
}

/// Returns whether the targets of these rows have the dtype that their device needs.
bool fit(const at::Tensor& targets, const at::Tensor& rows) {
  return targets.dim() == 1 && targets.size(0) == rows.size(0) &&
         targets.scalar_type() ==
             (narrow::is_on_narrow_device(rows) ? at::kInt : at::kLong);
}

void check_head(const at::Tensor& h, const tensor::Parameter& weight,
                const at::Tensor& targets, const LossHeadOptions& options) {
  LH_CHECK(h.dim() == 2 && fit(targets, h), "loss_head", "{} rows, {} targets in {}",
           h.size(0), targets.numel(), c10::toString(targets.scalar_type()));
  const format::TensorSlice& slice = weight.slice();
  LH_CHECK(options.combine || slice.extent[0] == slice.global_shape[0], "loss_head",
           "{} is a part of the vocabulary, and nothing combines the parts",
           format::describe_slice(slice));
  LH_CHECK(options.logits_divisor > 0.0, "loss_head",
           "the logits are divided by {}, which must be positive",
           options.logits_divisor);
  LH_CHECK(options.logits_cap >= 0.0, "loss_head",
           "the logits are capped at {}, which must be positive, or 0 for no cap",
           options.logits_cap);
  const at::Tensor& weights = options.row_weights;
  LH_CHECK(!weights.defined() || (weights.sizes() == targets.sizes() &&
                                  weights.scalar_type() == at::kFloat),
           "loss_head", "{} weights of {} rows", weights.numel(), h.size(0));
}

}  // namespace

LossHeadResult loss_head(const at::Tensor& h, const tensor::ParameterPtr& weight,
                         const at::Tensor& targets, const LossHeadOptions& options) {
  check_head(h, *weight, targets, options);
  LH_ASSERT(!at::GradMode::is_enabled() || h.requires_grad(),
            "the head's input is not part of a graph");
  return result_of(h, options, [&](bool want_gradient) {
    return run_chunks(h, weight, targets, options, want_gradient);
  });
}

at::Tensor token_log_probs(const at::Tensor& h, const tensor::ParameterPtr& weight,
                           const at::Tensor& targets, const LossHeadOptions& options) {
  check_head(h, *weight, targets, options);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> losses;
  each_chunk(h, weight, options,
             [&](int64_t from, int64_t n, at::Tensor& logits, const at::Tensor&) {
               losses.push_back(chunk_loss(logits, targets.narrow(0, from, n), {},
                                           weight->slice().offset[0], options,
                                           /*want_gradient=*/false)
                                    .cross_entropy);
             });
  return at::cat(losses).neg_();
}

LossHeadResult cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                             const LossHeadOptions& options) {
  LH_CHECK(logits.dim() == 2 && fit(targets, logits), "loss_head",
           "{} rows of logits, {} targets in {}", logits.size(0), targets.numel(),
           c10::toString(targets.scalar_type()));
  LH_ASSERT(options.logits_divisor == 1.0 && options.logits_cap == 0.0,
            "these logits are final");
  return result_of(logits, options, [&](bool want_gradient) {
    return totals_of(logits, targets, options, want_gradient);
  });
}

}  // namespace longhaul::ops
