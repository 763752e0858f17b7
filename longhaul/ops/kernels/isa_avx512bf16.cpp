#include "longhaul/ops/kernels/isa_kernels.h"
#include "longhaul/ops/kernels/weight_gradient_loops.h"

namespace longhaul::kernels {

const KernelTable& avx512bf16_kernels() {
  static constexpr KernelTable kTable{
      typed_kernels<float, float>(), typed_kernels<Bf16, Pair>(), {},
      convert_loop<float, Bf16>,     convert_loop<Bf16, float>,   weight_gradient_loop};
  return kTable;
}

}  // namespace longhaul::kernels
