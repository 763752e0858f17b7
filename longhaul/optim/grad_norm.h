#pragma once

#include <cstdint>
#include <span>

#include "longhaul/format/dtype.h"

namespace longhaul::optim {

/// Elements whose squares are added as one partial sum, counted from a tensor's start.
inline constexpr int64_t kNormBlock = 65536;
/// Such blocks of so many elements, of which the last may be a part of one.
constexpr int64_t norm_blocks(int64_t count) {
  return (count + kNormBlock - 1) / kNormBlock;
}

/// The sum of squares of `count` elements (F32 or BF16) in fp64: partial sums over blocks
/// of kNormBlock, added in block order. The bits depend neither on the number of threads
/// nor on the instruction set. Uses OpenMP threads.
double sum_of_squares(const void* data, int64_t count, DType dtype);

/// Elements whose squares are added to `into`.
struct SquaresRange {
  const void* x;
  int64_t count;
  double* into;
};

/// The norm of what has these sums of squares, added in their order.
double norm_of_sums(std::span<const double> squares);

/// max_norm / (norm + 1e-6) where that is below 1, else 1, as
/// torch.nn.utils.clip_grad_norm_ has it; 1 for max_norm = 0 (no clipping).
double clip_coefficient(double norm, double max_norm);

}  // namespace longhaul::optim
