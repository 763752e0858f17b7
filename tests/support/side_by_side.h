#pragma once

#include <ATen/ops/zeros.h>

#include <vector>

#include "longhaul/tensor/parameter.h"

namespace longhaul::testing {

/// Moves the matrices of bound parameters into one piece of memory, as in a bucket:
/// without gaps, and in the reverse of their forward order. Gradients start as zeros.
inline void lay_side_by_side(const std::vector<tensor::ParameterPtr>& parameters) {
  std::vector<tensor::ParameterPtr> matrices;
  int64_t elements = 0;
  for (const tensor::ParameterPtr& p : parameters) {
    if (p->slice().extent.size() != 2) continue;
    matrices.push_back(p);
    elements += p->slice().num_elements();
  }
  const at::Tensor weights = at::zeros({elements}, matrices.at(0)->weight().options());
  const at::Tensor grads = at::zeros({elements}, matrices.at(0)->grad().options());
  for (const tensor::ParameterPtr& p : matrices) {
    elements -= p->slice().num_elements();
    const auto place = [&](const at::Tensor& flat) {
      return flat.narrow(0, elements, p->slice().num_elements()).view(p->slice().extent);
    };
    const at::Tensor weight = place(weights).copy_(p->weight());
    p->bind(weight, place(grads));
  }
}

/// Returns each [T, heads, D] as [T, heads * D].
inline std::vector<at::Tensor> as_rows(const std::vector<at::Tensor>& heads) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& x : heads) rows.push_back(x.flatten(1));
  return rows;
}

}  // namespace longhaul::testing
