#pragma once

#include <cstdint>
#include <span>

#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {

/// One row of a batch that a source fills; each span holds seq_len elements.
struct BatchRow {
  std::span<int32_t> tokens;
  std::span<int32_t> targets;
  std::span<int32_t> positions;
  std::span<int32_t> document_start;
};

/// Returns a row of a batch after checking that index, row and length fit (Internal).
BatchRow batch_row(const TokenSource& source, int64_t index, TokenBatch& batch,
                   int64_t row);

/// Fills positions 0, 1, 2 ... and one document: attention over the whole row.
void fill_plain_positions(const BatchRow& row);

}  // namespace longhaul::data
