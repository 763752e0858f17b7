#include "longhaul/optim/adamw_loop.h"

namespace longhaul::optim {

void adamw_avx512(const AdamWRange& range, const AdamWScalars& s) { adamw_any(range, s); }

}  // namespace longhaul::optim
