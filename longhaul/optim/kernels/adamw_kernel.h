#pragma once

#include <cstdint>

#include "longhaul/optim/adamw.h"

namespace longhaul::optim {

AdamWScalars adamw_scalars(const AdamWStep& step);

/// Error (Internal) for what the loops do not know: see adamw_update.
void check_range(const AdamWRange& range, int64_t update);

/// adamw_update of a checked range, from its scalars.
void adamw_loop(const AdamWRange& range, const AdamWScalars& s, int64_t update,
                Isa isa = best_isa());

/// `update`: for stochastic rounding.
void adamw_avx2(const AdamWRange& range, const AdamWScalars& s, int64_t update);
void adamw_avx512(const AdamWRange& range, const AdamWScalars& s, int64_t update);

}  // namespace longhaul::optim
