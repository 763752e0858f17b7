#pragma once

// This header instantiates every kernel for the instruction set of the including
// isa_*.cpp.

#include "longhaul/ops/kernels/attention_backward_loops.h"
#include "longhaul/ops/kernels/cpu.h"
#include "longhaul/ops/kernels/dropout_loops.h"
#include "longhaul/ops/kernels/grouped_loops.h"
#include "longhaul/ops/kernels/loss_loops.h"
#include "longhaul/ops/kernels/norm_loops.h"
#include "longhaul/ops/kernels/pointwise_loops.h"

namespace longhaul::kernels {
namespace {

/// Returns the loops of the kernels of a list, each an overload of loop().
template <typename T, template <typename> class... Listed>
constexpr EntriesOf<T, KernelList<Listed...>> loops_of(KernelList<Listed...> /*list*/) {
  return {Entry<Listed<T>>{loop}...};
}

/// Returns the kernels of element type T; the attention's products read elements of type
/// E (tile.h).
template <typename T, typename E>
constexpr TypedKernels<T> typed_kernels() {
  return {loops_of<T>(Kernels()),
          {{attention_forward_loop<E, T, Results::Replace>},
           {attention_backward_loop<E, T, Results::Replace>},
           {attention_forward_loop<E, T, Results::GoOn>},
           {attention_backward_loop<E, T, Results::GoOn>},
           {loop}}};
}

/// Returns all kernels. E is the type of element that the attention's products read for
/// bf16 (tile.h), and kProduct is the instruction set's product.
template <typename E, void (*kProduct)(const Product&)>
constexpr KernelTable all_kernels(
    decltype(KernelTable::weight_gradient) weight_gradient = nullptr) {
  return {
      typed_kernels<float, float>(),
      typed_kernels<Bf16, E>(),
      {{kProduct}, {grouped_product_loop<kProduct>}, {grouped_gradient_loop<kProduct>}},
      convert_loop<float, Bf16>,
      convert_loop<Bf16, float>,
      weight_gradient};
}

}  // namespace
}  // namespace longhaul::kernels
