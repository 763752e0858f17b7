#include "longhaul/ops/kernels/isa_kernels.h"

namespace longhaul::kernels {

const KernelTable& avx512_kernels() {
  static constexpr KernelTable kTable{
      typed_kernels<float, float>(), typed_kernels<Bf16, float>(), {},
      convert_loop<float, Bf16>,     convert_loop<Bf16, float>,    nullptr};
  return kTable;
}

}  // namespace longhaul::kernels
