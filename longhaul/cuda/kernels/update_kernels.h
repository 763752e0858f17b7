#pragma once

#include <cstdint>
#include <span>

#include "longhaul/ops/kernels/cuda.h"
#include "longhaul/optim/grad_norm.h"
#include "longhaul/optim/update.h"

// The optimizers' loops as CUDA kernels on raw pointers to device memory, as cuda.h of
// ops/kernels has them: a call only enqueues. Every element sees the operations of
// element.h and every sum the order of the CPU's loops, so that the bits are those too.

namespace longhaul::optim::cuda {

using kernels::cuda::Stream;

/// adamw_update; `update`: for stochastic rounding.
void enqueue_adamw(const AdamWRange& range, const AdamWScalars& s, int64_t update,
                   Stream stream);

/// lamb_moments; the two sums of each block of kNormBlock elements side by side in
/// `partial`.
void enqueue_lamb_moments(const AdamWRange& range, const AdamWScalars& s, float decay,
                          int64_t update, double* partial, Stream stream);

/// lamb_apply at the rate, of device memory, that is there when the kernel runs.
void enqueue_lamb_apply(const AdamWRange& range, const AdamWScalars& s,
                        const LambRate& of, const double* rate, int64_t update,
                        Stream stream);

/// into += sum_of_squares of each of the parts, in their order; `partial`: one for each
/// of the norm_blocks of all of them. A launch has many parts.
void enqueue_squares(std::span<const SquaresRange> parts, DType dtype, double* partial,
                     Stream stream);

/// into[i] += partial[i], partial[i + series], ..., added in this order to 0 first.
void enqueue_total(const double* partial, int64_t blocks, int series, double* into,
                   Stream stream);

}  // namespace longhaul::optim::cuda
