#include "longhaul/ops/kernels/amx_attention.h"
#include "longhaul/ops/kernels/amx_product_loops.h"
#include "longhaul/ops/kernels/grouped_loops.h"
#include "longhaul/ops/kernels/isa_kernels.h"

namespace longhaul::kernels {

const KernelTable& amx_kernels() {
  static constexpr KernelTable kTable{typed_kernels<float, float>(),
                                      typed_kernels<Bf16, TilePair>(),
                                      {{tile_product_loop},
                                       {grouped_product_loop<tile_product_loop>},
                                       {grouped_gradient_loop<tile_product_loop>}},
                                      convert_loop<float, Bf16>,
                                      convert_loop<Bf16, float>,
                                      nullptr};
  return kTable;
}

}  // namespace longhaul::kernels
