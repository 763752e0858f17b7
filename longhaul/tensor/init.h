#pragma once

#include <cstdint>

#include "longhaul/tensor/parameter.h"

namespace longhaul::tensor {

/// Fills a contiguous CPU fp32 tensor with the first values of elements [begin, end) of
/// the slice's extent. A value depends only on the seed, the name of the tensor and the
/// global index of the element, so that every layout starts from the same weights.
void initial_values(const format::TensorSlice& slice, const Init& init, uint64_t seed,
                    int64_t begin, int64_t end, float* out);

/// Sets to zero the elements among [begin, end) of the slice's extent that belong to row
/// `row` of the whole tensor. `out` holds the elements [begin, end).
void zero_row(const format::TensorSlice& slice, int64_t row, int64_t begin, int64_t end,
              float* out);

}  // namespace longhaul::tensor
