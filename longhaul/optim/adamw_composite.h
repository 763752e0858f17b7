#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "longhaul/optim/adamw.h"

namespace longhaul::optim {

/// One contiguous range of elements with its state, all of one length.
struct AdamWTensors {
  at::Tensor gradient;
  at::Tensor master;  ///< fp32, or bf16 with `rounding`
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  at::Tensor weight;                      ///< may be master itself
  std::optional<Rounding> rounding = {};  ///< as AdamWRange::rounding
};

/// adamw_update in ATen operations, for any device: the reference of the fused form.
void adamw_composite(const AdamWTensors& t, const AdamWStep& step);

/// sum_of_squares for any device.
double sum_of_squares_composite(const at::Tensor& x);

}  // namespace longhaul::optim
