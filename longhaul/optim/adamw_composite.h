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

/// Elements whose fp64 copy the composite form of a sum of squares makes at a time.
inline constexpr int64_t kSquaresElements = int64_t{1} << 20;

/// Adds sum_of_squares to `into`, fp64 of one element, on any device: waits for nothing.
void add_squares_composite(const at::Tensor& x, const at::Tensor& into);

}  // namespace longhaul::optim
