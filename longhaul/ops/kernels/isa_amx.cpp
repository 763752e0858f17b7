#include "longhaul/ops/kernels/amx_attention.h"
#include "longhaul/ops/kernels/amx_product_loops.h"
#include "longhaul/ops/kernels/isa_kernels.h"

namespace longhaul::kernels {

const KernelTable& amx_kernels() {
  static constexpr KernelTable kTable = all_kernels<TilePair, tile_product_loop>();
  return kTable;
}

}  // namespace longhaul::kernels
