#include "longhaul/data/sources/rows.h"

#include <algorithm>
#include <numeric>

#include "longhaul/base/error.h"

namespace longhaul::data {

BatchRow batch_row(const TokenSource& source, int64_t index, TokenBatch& batch,
                   int64_t row) {
  LH_CHECK(index >= 0 && index < source.num_sequences(), "data", "sequence {} of {}",
           index, source.num_sequences());
  LH_CHECK(batch.seq_len == source.seq_len() && row >= 0 && row < batch.num_sequences,
           "data", "row {} of a batch [{}, {}] for sequences of {}", row,
           batch.num_sequences, batch.seq_len, source.seq_len());
  const auto length = static_cast<size_t>(batch.seq_len);
  const size_t begin = static_cast<size_t>(row) * length;
  const auto part = [&](std::vector<int32_t>& all) {
    return std::span(all).subspan(begin, length);
  };
  return {part(batch.tokens), part(batch.targets[0]), part(batch.positions),
          part(batch.document_start)};
}

void fill_plain_positions(const BatchRow& row) {
  std::iota(row.positions.begin(), row.positions.end(), 0);
  std::fill(row.document_start.begin(), row.document_start.end(), 0);
}

void set_real_length(TokenBatch& batch, int64_t row, int64_t length) {
  if (batch.real.empty()) {
    if (length == batch.seq_len) return;
    batch.real.assign(batch.tokens.size(), 1);
  }
  const auto begin = batch.real.begin() + row * batch.seq_len;
  std::fill(begin, begin + length, 1);
  std::fill(begin + length, begin + batch.seq_len, 0);
}

}  // namespace longhaul::data
