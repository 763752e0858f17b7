#include "longhaul/ops/kernels/isa_kernels.h"
#include "longhaul/ops/kernels/product_loops.h"
#include "longhaul/ops/kernels/weight_gradient_loops.h"

namespace longhaul::kernels {

const KernelTable& avx512bf16_kernels() {
  static constexpr KernelTable kTable =
      all_kernels<Pair, product_loop<Pair>>(weight_gradient_loop);
  return kTable;
}

}  // namespace longhaul::kernels
