#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

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

/// Elements that composite forms take at a time, which bounds their fp32 copies; those
/// that are rounded at random have numbers of 64 bits beside them.
inline constexpr int64_t kCompositeElements = int64_t{1} << 24;
inline constexpr int64_t kRoundedElements = int64_t{1} << 22;

/// `t` in parts of at most `most` elements (0: as above), in ascending order.
std::vector<AdamWTensors> parts_of(const AdamWTensors& t, int64_t most = 0);

/// adamw_update in ATen operations, for any device: the reference of the fused form.
/// `most`: as parts_of has it.
void adamw_composite(const AdamWTensors& t, const AdamWStep& step, int64_t most = 0);

/// Elements whose fp64 copy the composite form of a sum of squares makes at a time.
inline constexpr int64_t kSquaresElements = int64_t{1} << 20;

/// Adds sum_of_squares to `into`, fp64 of one element, on any device: waits for nothing.
void add_squares_composite(const at::Tensor& x, const at::Tensor& into);

}  // namespace longhaul::optim
