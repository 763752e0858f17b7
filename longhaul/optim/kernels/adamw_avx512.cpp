#include "longhaul/optim/kernels/adamw_loop.h"

namespace longhaul::optim {

void adamw_avx512(const AdamWRange& range, const AdamWScalars& s, int64_t update) {
  adamw_any(range, s, update);
}

}  // namespace longhaul::optim
