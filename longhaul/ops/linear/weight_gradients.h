#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "longhaul/ops/linear/linear_input.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul::ops {

/// Weight gradients that a backward has asked for and that are still to be computed:
/// grad += dy^T x, accumulated straight into the parameter's bucket. The schedule decides
/// when it drains: at once, after a collective has been launched, or later (zero-bubble).
/// Entries keep x and dy alive and unwritten. Not thread-safe; drained in order of entry,
/// which is ascending micro batches.
class WeightGradients {
 public:
  /// x [T, K], or how to have it again when its turn comes; dy [T, N], weight [N, K].
  /// Frozen parameters are left out.
  void push(ParameterPtr weight, LinearInput x, at::Tensor dy);
  /// Of weights [n_i, K], all frozen or none, whose gradients are one matrix
  /// (joined_rows): one product. dy [T, sum n], in the order of the weights.
  void push(std::vector<ParameterPtr> weights, LinearInput x, at::Tensor dy);
  /// Calls it in the order of the entries: when those before it are computed.
  void call(std::function<void()> between);
  /// Computes and forgets all entries.
  void drain();
  /// Forgets all entries: after a failure, since a graph cannot be run again.
  void clear() { entries_.clear(); }
  bool empty() const { return entries_.empty(); }

  /// True: push computes at once (the default).
  void set_immediate(bool immediate) { immediate_ = immediate; }
  /// Called after each computed gradient: the place, spread evenly over a backward, where
  /// communication under way is driven on.
  void set_after_each(std::function<void()> call) { after_each_ = std::move(call); }

 private:
  struct Entry {
    std::vector<ParameterPtr> weights;
    LinearInput x;
    at::Tensor dy;
  };
  void compute(const Entry& entry) const;

  bool immediate_ = true;
  std::vector<std::function<void()>> entries_;
  std::function<void()> after_each_;
};

using WeightGradientsPtr = std::shared_ptr<WeightGradients>;

/// grad += dy^T x now. x [T, K], dy [T, N], grad [N, K] fp32 or bf16.
void accumulate_weight_gradient(const at::Tensor& grad, const at::Tensor& x,
                                const at::Tensor& dy);
/// The same for weights as in WeightGradients::push; what is unset is written, not added
/// to.
void accumulate_weight_gradient(const std::vector<ParameterPtr>& weights,
                                const at::Tensor& x, const at::Tensor& dy);

}  // namespace longhaul::ops
