#include "longhaul/ops/kernels/grouped_loops.h"
#include "longhaul/ops/kernels/isa_kernels.h"
#include "longhaul/ops/kernels/product_loops.h"
#include "longhaul/ops/kernels/weight_gradient_loops.h"

namespace longhaul::kernels {

const KernelTable& avx512bf16_kernels() {
  static constexpr KernelTable kTable{typed_kernels<float, float>(),
                                      typed_kernels<Bf16, Pair>(),
                                      {{product_loop<Pair>},
                                       {grouped_product_loop<product_loop<Pair>>},
                                       {grouped_gradient_loop<product_loop<Pair>>}},
                                      convert_loop<float, Bf16>,
                                      convert_loop<Bf16, float>,
                                      weight_gradient_loop};
  return kTable;
}

}  // namespace longhaul::kernels
