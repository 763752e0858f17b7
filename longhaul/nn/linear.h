#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul::nn {

/// y = x W^T, W [out, in].
class Linear {
 public:
  Linear(const std::string& name, int64_t in, int64_t out, double stddev);
  /// [T, in] -> [T, out].
  at::Tensor forward(const ops::LinearInput& x, const ForwardContext& context) const;
  const ParameterPtr& weight() const { return weight_; }

 private:
  ParameterPtr weight_;
};

/// Rows of a [V, H] table, whose vocabulary may be split.
class Embedding {
 public:
  Embedding(const std::string& name, int64_t vocab, int64_t hidden, double stddev);
  /// ids [T]; result [T, H], or this rank's part of T (SplitRegion::leave).
  at::Tensor forward(const at::Tensor& ids, const ForwardContext& context) const;
  const ParameterPtr& weight() const { return weight_; }

 private:
  ParameterPtr weight_;
};

/// ops::rms_norm with its weight [H], ones at the start.
class RmsNorm {
 public:
  RmsNorm(const std::string& name, int64_t hidden, double eps);
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;
  const ParameterPtr& weight() const { return weight_; }

 private:
  ParameterPtr weight_;
  double eps_;
};

}  // namespace longhaul::nn
