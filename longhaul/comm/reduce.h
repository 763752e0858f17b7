#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "longhaul/comm/communicator.h"
#include "longhaul/format/dtype.h"

namespace longhaul::comm {

/// Returns true for F32, BF16, F64 and I64.
bool is_reducible(format::DType dtype);

/// Computes out[i] = parts[0][i] op parts[1][i] op ..., in this order. BF16 is added in
/// fp32 and rounded once at the end, I64 wraps around, and Max keeps NaN. `out` may be
/// one of the parts.
void reduce_parts(std::span<const std::byte* const> parts, std::byte* out, int64_t count,
                  format::DType dtype, ReduceOp op);

}  // namespace longhaul::comm
