#include "longhaul/parallel/data/unit_runner.h"

#include <ATen/core/grad_mode.h>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"

namespace longhaul::parallel {
namespace {

using ops::AutogradContext;
using ops::tensor_list;

struct UnitSaved {
  UnitRunner* runner;
  int unit;
  bool embedding;
  ops::WeightGradientsPtr queue;
};

tensor_list detached(at::TensorList tensors) {
  tensor_list out;
  for (const at::Tensor& tensor : tensors) out.push_back(tensor.detach());
  return out;
}

/// The identity before a block. Its backward runs when the block's backward has ended.
struct EntryNode : ops::Function<EntryNode> {
  static tensor_list forward(AutogradContext* ctx, at::TensorList x, UnitSaved unit) {
    ops::save(ctx, unit);
    return detached(x);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const UnitSaved& s = ops::saved<UnitSaved>(ctx);
    s.queue->call([runner = s.runner, unit = s.unit] { runner->close(unit); });
    s.runner->used(s.unit);
    s.runner->tell(s.unit, /*backward=*/true, /*begins=*/false);
    grads.emplace_back();
    return grads;
  }
};

/// The identity after a block. Its backward runs before the block's backward.
struct ExitNode : ops::Function<ExitNode> {
  static tensor_list forward(AutogradContext* ctx, at::TensorList y, UnitSaved unit) {
    ops::save(ctx, unit);
    return detached(y);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const UnitSaved& s = ops::saved<UnitSaved>(ctx);
    if (s.embedding) {
      s.runner->open(s.unit);
    } else {
      s.runner->tell(s.unit, /*backward=*/true, /*begins=*/true);
      s.runner->use(s.unit);
      s.queue->call([runner = s.runner, unit = s.unit] { runner->open(unit); });
    }
    grads.emplace_back();
    return grads;
  }
};

}  // namespace

void UnitRunner::begin(const layout::UnitPlan& plan) {
  plan_ = &plan;
  next_weights_ = 0;
  next_gradients_ = 0;
}

void UnitRunner::end() {
  LH_ASSERT(next_weights_ == plan_->weights.size() &&
                next_gradients_ == plan_->gradients.size(),
            "a step ended after {} of {} uses and {} of {} gradients", next_weights_,
            plan_->weights.size(), next_gradients_, plan_->gradients.size());
  if (!plan_->gradients.empty()) data_.finish_gradients();
}

void UnitRunner::abandon() {
  plan_ = nullptr;
  data_.abandon();
}

void UnitRunner::use(int unit) {
  LH_ASSERT(plan_ != nullptr && next_weights_ < plan_->weights.size() &&
                plan_->weights[next_weights_].unit == unit,
            "unit {} is used out of its turn, as use {} of the step", unit,
            next_weights_);
  data_.need(unit);
  for (const int ahead : plan_->weights[next_weights_].gather) data_.prefetch(ahead);
}

void UnitRunner::used(int unit) {
  const layout::WeightUse& use = plan_->weights.at(next_weights_++);
  LH_ASSERT(use.unit == unit, "unit {} was used, not {}", use.unit, unit);
  for (const int held : use.release) data_.release(held);
}

void UnitRunner::close(int unit) {
  LH_ASSERT(plan_ != nullptr && next_gradients_ < plan_->gradients.size() &&
                plan_->gradients[next_gradients_].unit == unit,
            "gradients of unit {} come out of their turn, as number {} of the step", unit,
            next_gradients_);
  const layout::GradientUse& formed = plan_->gradients[next_gradients_++];
  if (formed.reduce) data_.close_gradients(unit, formed.last);
}

nn::Tensors UnitRunner::enter(int unit, const nn::Tensors& x,
                              const ops::WeightGradientsPtr& queue) {
  tell(unit, /*backward=*/false, /*begins=*/true);
  use(unit);
  if (x.empty() || !at::GradMode::is_enabled()) return x;
  return EntryNode::apply(at::TensorList(x), UnitSaved{this, unit, false, queue});
}

nn::Tensors UnitRunner::leave(int unit, const nn::Tensors& y,
                              const ops::WeightGradientsPtr& queue, bool embedding) {
  nn::Tensors out = y;
  if (at::GradMode::is_enabled()) {
    out = ExitNode::apply(at::TensorList(y), UnitSaved{this, unit, embedding, queue});
  }
  used(unit);
  tell(unit, /*backward=*/false, /*begins=*/false);
  return out;
}

}  // namespace longhaul::parallel
