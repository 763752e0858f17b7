#pragma once

#include <cstdint>

#include "longhaul/optim/kernels/adamw.h"

namespace longhaul::optim {

AdamWScalars adamw_scalars(const AdamWStep& step);

/// Throws Error (Internal) for a dtype or a rounding that the loops do not know.
void check_range(const AdamWRange& range, int64_t update);

/// Makes one update of a checked range, in fp32 whatever the storage. Every element is
/// computed by the same IEEE operations, so the bits depend neither on the number of
/// threads nor on the instruction set. Uses OpenMP threads.
void adamw_loop(const AdamWRange& range, const AdamWScalars& s, int64_t update,
                system::Isa isa = system::best_isa());

}  // namespace longhaul::optim
