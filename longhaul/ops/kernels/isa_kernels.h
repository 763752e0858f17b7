#pragma once

// This header instantiates every kernel for the instruction set of the including
// isa_*.cpp.

#include "longhaul/ops/kernels/attention_backward_loops.h"
#include "longhaul/ops/kernels/cpu.h"
#include "longhaul/ops/kernels/dropout_loops.h"
#include "longhaul/ops/kernels/loss_loops.h"
#include "longhaul/ops/kernels/norm_loops.h"
#include "longhaul/ops/kernels/pointwise_loops.h"

namespace longhaul::kernels {
namespace {

/// Returns the kernels of element type T; the attention's products read elements of type
/// E (tile.h).
template <typename T, typename E>
constexpr TypedKernels<T> typed_kernels() {
  return {{rms_norm_forward_loop<T>},
          {rms_norm_backward_loop<T>},
          {rope_loop<T>},
          {gated_product_forward_loop<T>},
          {gated_product_backward_loop<T>},
          {gather_rows_loop<T>},
          {sum_rows_loop<T>},
          {attention_forward_loop<E, T, Results::Replace>},
          {attention_backward_loop<E, T, Results::Replace>},
          {attention_forward_loop<E, T, Results::GoOn>},
          {attention_backward_loop<E, T, Results::GoOn>},
          {cross_entropy_statistics_loop<T>},
          {cross_entropy_gradient_loop<T>},
          {cross_entropy_loop<T>},
          {dropout_loop<T>}};
}

}  // namespace
}  // namespace longhaul::kernels
