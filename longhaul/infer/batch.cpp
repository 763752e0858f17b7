#include "longhaul/infer/batch.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

namespace longhaul::infer {
namespace {

/// `each`: values of a row.
at::Tensor rows_of(std::vector<int32_t>& values, int64_t row, int64_t rows, int64_t each,
                   at::Device device) {
  return at::from_blob(values.data() + row * each, {rows * each}, at::kInt).to(device);
}

}  // namespace

nn::Batch batch_of(data::TokenBatch& batch, int64_t row, int64_t rows,
                   at::Device device) {
  const int64_t seq = batch.seq_len;
  nn::Batch out;
  out.rows = rows;
  out.seq = seq;
  out.tokens = rows_of(batch.tokens, row, rows, seq, device);
  out.positions = rows_of(batch.positions, row, rows, seq, device);
  if (!batch.segments.empty()) {
    out.segments = rows_of(batch.segments, row, rows, seq, device);
  }
  for (std::vector<int32_t>& targets : batch.targets) {
    const auto each = static_cast<int64_t>(targets.size()) / batch.num_sequences;
    out.targets.push_back(rows_of(targets, row, rows, each, device).to(at::kLong));
  }
  const auto first = batch.document_start.begin() + row * seq;
  // All zero is the plain causal mask, which needs no tensor.
  if (std::any_of(first, first + rows * seq, [](int32_t start) { return start != 0; })) {
    out.document_start =
        rows_of(batch.document_start, row, rows, seq, device).view({rows, seq});
  }
  if (!batch.document_end.empty()) {
    out.document_end =
        rows_of(batch.document_end, row, rows, seq, device).view({rows, seq});
  }
  if (!batch.sequences.empty()) {
    out.sequences =
        at::from_blob(batch.sequences.data() + row, {rows}, at::kLong).to(device);
    out.index = rows_of(batch.index, row, rows, seq, device);
  }
  return out;
}

}  // namespace longhaul::infer
