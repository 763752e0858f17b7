#pragma once

#include <cstdint>

#include "longhaul/tensor/parameter.h"

namespace longhaul {

/// Fills a contiguous CPU fp32 tensor with the first values of elements [begin, end) of
/// the slice's extent. A value depends on (seed, tensor name, global element index) only,
/// so every layout starts from the same weights. Thread count does not matter.
void initial_values(const TensorSlice& slice, const Init& init, uint64_t seed,
                    int64_t begin, int64_t end, float* out);

/// Sets to zero what elements [begin, end) of the slice's extent hold of a row of the
/// whole tensor. `out`: those elements, as initial_values fills them.
void zero_row(const TensorSlice& slice, int64_t row, int64_t begin, int64_t end,
              float* out);

}  // namespace longhaul
