#include "longhaul/ops/kernels/grouped_loops.h"
#include "longhaul/ops/kernels/isa_kernels.h"
#include "longhaul/ops/kernels/product_loops.h"

namespace longhaul::kernels {

const KernelTable& avx2_kernels() {
  static constexpr KernelTable kTable{typed_kernels<float, float>(),
                                      typed_kernels<Bf16, float>(),
                                      {{product_loop<float>},
                                       {grouped_product_loop<product_loop<float>>},
                                       {grouped_gradient_loop<product_loop<float>>}},
                                      convert_loop<float, Bf16>,
                                      convert_loop<Bf16, float>,
                                      nullptr};
  return kTable;
}

}  // namespace longhaul::kernels
