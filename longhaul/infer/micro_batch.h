#pragma once

#include "longhaul/data/sources/token_source.h"
#include "longhaul/nn/forward_context.h"

namespace longhaul::infer {

/// Some rows of a batch as tensors.
struct MicroBatch {
  at::Tensor tokens;   ///< [T] int32
  at::Tensor targets;  ///< [T] int64
  nn::ForwardContext context;
};

/// Rows [row, row + rows) on the device. On a CPU the tensors may be views of the batch,
/// which must stay unchanged as long as they are used.
MicroBatch micro_batch(data::TokenBatch& batch, int64_t row, int64_t rows,
                       at::Device device, bool fused);

}  // namespace longhaul::infer
