#pragma once

#include <cstdint>
#include <span>

#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {

/// One row of a batch that a source fills. Each span holds seq_len elements.
struct BatchRow {
  std::span<int32_t> tokens;
  std::span<int32_t> targets;
  std::span<int32_t> positions;
  std::span<int32_t> document_start;
};

/// Returns a row of a batch. Throws an internal error unless index, row and length fit.
BatchRow batch_row(const TokenSource& source, int64_t index, TokenBatch& batch,
                   int64_t row);

/// Fills positions with 0, 1, 2 ... and document_start with 0, so that attention covers
/// the whole row.
void fill_plain_positions(const BatchRow& row);

/// Says that all positions of a row from `length` on are padding.
void set_real_length(TokenBatch& batch, int64_t row, int64_t length);

}  // namespace longhaul::data
