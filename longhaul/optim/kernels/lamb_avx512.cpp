#include "longhaul/optim/kernels/lamb_loop.h"

namespace longhaul::optim {

void lamb_moments_avx512(const AdamWRange& range, const AdamWScalars& s, float decay,
                         int64_t update, LambSums* partial) {
  lamb_moments_any(range, s, decay, update, partial);
}

void lamb_apply_avx512(const AdamWRange& range, const AdamWScalars& s, int64_t update) {
  lamb_apply_any(range, s, update);
}

}  // namespace longhaul::optim
