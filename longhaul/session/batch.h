#pragma once

#include "longhaul/data/sources/token_source.h"
#include "longhaul/nn/forward_context.h"

namespace longhaul::session {

/// Returns rows [row, row + rows) of the batch as tensors on the device. On a CPU the
/// tensors may be views of the batch, which must then stay unchanged while they are used.
/// On a device where each shape is compiled, batches have the start of documents always
/// with `masks_documents`; elsewhere they have it where a document begins within a row.
nn::Batch batch_of(data::TokenBatch& batch, int64_t row, int64_t rows, at::Device device,
                   bool masks_documents = false);

}  // namespace longhaul::session
