#pragma once

#include <cstdint>
#include <span>

#include "longhaul/ops/kernels/cuda.h"
#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/optim/kernels/update.h"

// These functions run the loops of the optimizers as CUDA kernels on raw pointers to
// device memory. A call only enqueues its kernels. Every element goes through the
// operations of element.h, and every sum has the order of the CPU's loops, so that the
// results have the same bits as on a CPU.

namespace longhaul::optim::cuda {

using kernels::cuda::Stream;

/// Enqueues an update of AdamW. Stochastic rounding draws by the number `update`.
void enqueue_adamw(const AdamWRange& range, const AdamWScalars& s, int64_t update,
                   Stream stream);

/// Enqueues the first pass of LAMB. It writes two sums for each block of kNormBlock
/// elements side by side to `partial`: the squares of masters and those of directions.
void enqueue_lamb_moments(const AdamWRange& range, const AdamWScalars& s, float decay,
                          int64_t update, double* partial, Stream stream);

/// Enqueues the second pass of LAMB. `rate`, in device memory, is read when the kernel
/// runs.
void enqueue_lamb_apply(const AdamWRange& range, const AdamWScalars& s,
                        const LambRate& of, const double* rate, int64_t update,
                        Stream stream);

/// Adds the sum_of_squares() of each part to the part's `into`, in the order of the
/// parts. `partial` has room for the norm_blocks of all parts. A launch works on many
/// parts.
void enqueue_squares(std::span<const SquaresRange> parts, format::DType dtype,
                     double* partial, Stream stream);

/// Computes into[i] += sum of partial[i], partial[i + series], ..., where the sum begins
/// with 0 and is made in this order.
void enqueue_total(const double* partial, int64_t blocks, int series, double* into,
                   Stream stream);

}  // namespace longhaul::optim::cuda
