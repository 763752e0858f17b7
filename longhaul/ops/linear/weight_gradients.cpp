#include "longhaul/ops/linear/weight_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/fused/library_op.h"
#include "longhaul/ops/linear/side_by_side.h"
#include "longhaul/tensor/device_limits.h"

namespace longhaul::ops {

void WeightGradients::push(std::vector<tensor::ParameterPtr> weights, LinearInput x,
                           at::Tensor dy) {
  if (weights.front()->frozen()) return;
  push(
      [weights = std::move(weights)](const at::Tensor& in, const at::Tensor& of) {
        accumulate_weight_gradient(weights, in, of);
      },
      std::move(x), std::move(dy));
}

void WeightGradients::push(Accumulate accumulate, LinearInput x, at::Tensor dy) {
  // The input is detached, since the graph would keep tensors that the backward no longer
  // needs.
  if (!immediate_ && x.x.defined()) x.x = x.x.detach();
  call([this, accumulate = std::move(accumulate), x = std::move(x), dy = std::move(dy)] {
    accumulate(x.again ? x.again->take() : x.x, dy);
    if (after_each_) after_each_();
  });
}

void WeightGradients::call(std::function<void()> between) {
  if (immediate_) return between();
  entries_.push_back(std::move(between));
}

void WeightGradients::drain() {
  const auto entries = std::exchange(entries_, {});
  for (const auto& entry : entries) entry();
}

namespace {

/// A product that cannot be added to the accumulator at once is made for so many rows of
/// the weight at a time. In one piece the product of an embedding would be one more copy
/// of the weights.
constexpr int64_t kPieceRows = 8192;

void accumulate_in_pieces(const at::Tensor& grad, const at::Tensor& x,
                          const at::Tensor& dy) {
  for (int64_t from = 0; from < grad.size(0); from += kPieceRows) {
    const int64_t rows = std::min(kPieceRows, grad.size(0) - from);
    // The columns of dy are made contiguous. Otherwise the product would transpose it by
    // a slow copy.
    const at::Tensor part = dy.narrow(1, from, rows).contiguous();
    grad.narrow(0, from, rows).add_(at::mm(part.t(), x));
  }
}

// The operators below are for devices that are not a CPU, operands in bf16 and an
// accumulator in fp32: the product must not be rounded to bf16 before it is added.

const LibraryOp kAddmm("aten::addmm", "dtype_out", "self mat1 mat2 out_dtype out");
const LibraryOp kMm("aten::mm", "dtype", "self mat2 out_dtype");

/// Rows of operands that are widened at once on a device that has neither operator.
constexpr int64_t kWideRows = 2048;

void call_addmm(const at::Tensor& grad, const at::Tensor& a, const at::Tensor& b) {
  kAddmm.call({{"self", grad},
               {"mat1", a},
               {"mat2", b},
               {"out_dtype", static_cast<int64_t>(grad.scalar_type())},
               {"out", grad}});
}

/// Returns whether addmm adds a product of tensors like x to a matrix like grad. Versions
/// of LibTorch differ in this, so that a small product is tried once for each device and
/// dtype. Each thread tries it: in a rehearsal each thread plays a rank, whose memory is
/// counted.
bool addmm_serves(const at::Tensor& grad, const at::Tensor& x) {
  if (!kAddmm.serves(x.device())) return false;
  thread_local std::map<std::pair<c10::DeviceType, at::ScalarType>, bool> known;
  const auto [place, fresh] = known.try_emplace({x.device().type(), x.scalar_type()});
  if (!fresh) return place->second;
  try {
    const at::Tensor small = at::zeros({16, 16}, x.options());
    call_addmm(at::zeros({16, 16}, grad.options()), small, small);
    place->second = true;
  } catch (const c10::Error&) {
    place->second = false;
  }
  return place->second;
}

void accumulate_on_device(const at::Tensor& grad, const at::Tensor& x,
                          const at::Tensor& dy) {
  // A device that cannot write into a part of the gradient takes all rows at once.
  const bool in_pieces = tensor::limits_of(x.device()).writes_views;
  if (addmm_serves(grad, x)) return call_addmm(grad, dy.t(), x);
  if (in_pieces && kMm.serves(x.device())) {
    for (int64_t from = 0; from < grad.size(0); from += kPieceRows) {
      const int64_t rows = std::min(kPieceRows, grad.size(0) - from);
      const auto product =
          kMm.call({{"self", dy.narrow(1, from, rows).t()},
                    {"mat2", x},
                    {"out_dtype", static_cast<int64_t>(grad.scalar_type())}});
      grad.narrow(0, from, rows).add_(product[0].toTensor());
    }
    return;
  }
  for (int64_t from = 0; from < x.size(0); from += kWideRows) {
    const int64_t rows = std::min(kWideRows, x.size(0) - from);
    const auto wide = [&](const at::Tensor& t) {
      return t.narrow(0, from, rows).to(grad.scalar_type());
    };
    at::Tensor(grad).addmm_(wide(dy).t(), wide(x));
  }
}

}  // namespace

void accumulate_weight_gradient(const at::Tensor& grad, const at::Tensor& x,
                                const at::Tensor& dy) {
  const at::NoGradGuard no_grad;
  at::Tensor target = grad;
  if (fused::weight_gradient(target, x, dy, /*add=*/true)) return;
  if (target.scalar_type() == x.scalar_type()) {
    target.addmm_(dy.t(), x);
  } else if (!target.is_cpu() && target.scalar_type() == at::kFloat) {
    accumulate_on_device(target, x, dy);
  } else if (target.is_cpu() && target.size(0) > kPieceRows) {
    accumulate_in_pieces(target, x, dy);
  } else {
    target.add_(at::mm(dy.t(), x));
  }
}

void accumulate_weight_gradient(const std::vector<tensor::ParameterPtr>& weights,
                                const at::Tensor& x, const at::Tensor& dy) {
  const at::NoGradGuard no_grad;
  const bool unset = std::ranges::all_of(
      weights, [](const tensor::ParameterPtr& weight) { return weight->grad_unset(); });
  // The gradients are looked up only now, since some have memory only while they are
  // formed.
  std::vector<at::Tensor> grads;
  for (const tensor::ParameterPtr& weight : weights) {
    grads.push_back(unset ? weight->grad_to_write() : weight->grad());
  }
  at::Tensor grad = joined_rows(grads);
  LH_ASSERT(grad.defined(), "{}: its gradient does not lie beside those of its product",
            weights.front()->name());
  if (unset) {
    if (fused::weight_gradient(grad, x, dy, /*add=*/false)) return;
    grad.zero_();
  }
  accumulate_weight_gradient(grad, x, dy);
}

}  // namespace longhaul::ops
