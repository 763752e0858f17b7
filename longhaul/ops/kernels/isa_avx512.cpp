#include "longhaul/ops/kernels/isa_kernels.h"
#include "longhaul/ops/kernels/product_loops.h"

namespace longhaul::kernels {

const KernelTable& avx512_kernels() {
  static constexpr KernelTable kTable = all_kernels<float, product_loop<float>>();
  return kTable;
}

}  // namespace longhaul::kernels
