#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "longhaul/ops/linear/linear_input.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul::ops {

/// Weight gradients that the backward pass has deferred: grad += dy^T x, added straight
/// to the bucket of the parameter. The schedule decides when the queue is drained: at
/// once, after a collective has been launched, or later (zero-bubble). The queue runs the
/// entries in their order, which is the order of micro batches. Entries keep x and dy
/// alive, and nobody may write to x and dy until the entry has run. Not thread-safe.
class WeightGradients {
 public:
  /// Adds the weight gradients of inputs x and gradients dy to their accumulators.
  using Accumulate = std::function<void(const at::Tensor& x, const at::Tensor& dy)>;
  /// Enters the product dy^T x for weights [n_i, K] whose gradients are one matrix
  /// (joined_rows). Either all of the weights are frozen, and are left out, or none is.
  /// `x` is [T, K], or says how to have x again when the queue comes to this entry. dy is
  /// [T, sum n], in the order of the weights.
  void push(std::vector<tensor::ParameterPtr> weights, LinearInput x, at::Tensor dy);
  /// Enters a call of accumulate(x, dy), for weights that several products share.
  void push(Accumulate accumulate, LinearInput x, at::Tensor dy);
  /// Enters a call of `between`, which follows when the entries before it have been
  /// computed.
  void call(std::function<void()> between);
  /// Computes all entries and empties the queue.
  void drain();
  /// Empties the queue after a failure, since a graph cannot be run again.
  void clear() { entries_.clear(); }
  bool empty() const { return entries_.empty(); }

  /// Sets whether push() computes at once, which is the default.
  void set_immediate(bool immediate) { immediate_ = immediate; }
  bool immediate() const { return immediate_; }
  /// Sets a function that is called after each computed gradient. These calls are spread
  /// evenly over a backward pass, and drive communication that is under way.
  void set_after_each(std::function<void()> call) { after_each_ = std::move(call); }

 private:
  bool immediate_ = true;
  std::vector<std::function<void()>> entries_;
  std::function<void()> after_each_;
};

using WeightGradientsPtr = std::shared_ptr<WeightGradients>;

/// Adds dy^T x to grad now. x is [T, K], dy [T, N], and grad [N, K] is fp32 or bf16.
void accumulate_weight_gradient(const at::Tensor& grad, const at::Tensor& x,
                                const at::Tensor& dy);
/// Adds dy^T x to the gradients of weights as WeightGradients::push takes them. Gradients
/// that are unset (Parameter::unset_grad) are written instead of added to.
void accumulate_weight_gradient(const std::vector<tensor::ParameterPtr>& weights,
                                const at::Tensor& x, const at::Tensor& dy);

}  // namespace longhaul::ops
