#pragma once

#include <cstdint>
#include <span>

#include "longhaul/format/dtype.h"

namespace longhaul::optim {

/// The number of elements whose squares are added as one partial sum, a block. Blocks
/// begin at the start of a tensor.
inline constexpr int64_t kNormBlock = 65536;
/// Returns the number of blocks of a tensor; the last block may be shorter.
constexpr int64_t norm_blocks(int64_t count) {
  return (count + kNormBlock - 1) / kNormBlock;
}

/// Returns the sum of squares of `count` elements (F32 or BF16) in fp64: partial sums
/// over blocks of kNormBlock, added in block order. The bits depend neither on the number
/// of threads nor on the instruction set. Uses OpenMP threads.
double sum_of_squares(const void* data, int64_t count, format::DType dtype);

/// A range of elements, and where the sum of their squares is added.
struct SquaresRange {
  const void* x;
  int64_t count;
  double* into;
};

/// Returns the norm that follows from these sums of squares, which are added in their
/// order.
double norm_of_sums(std::span<const double> squares);

/// Returns max_norm / (norm + 1e-6), at most 1, as torch.nn.utils.clip_grad_norm_ does; 1
/// for max_norm = 0, which means no clipping.
double clip_coefficient(double norm, double max_norm);

}  // namespace longhaul::optim
