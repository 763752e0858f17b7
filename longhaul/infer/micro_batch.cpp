#include "longhaul/infer/micro_batch.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

namespace longhaul::infer {
namespace {

at::Tensor rows_of(std::vector<int32_t>& values, int64_t begin, int64_t count,
                   at::Device device) {
  return at::from_blob(values.data() + begin, {count}, at::kInt).to(device);
}

}  // namespace

MicroBatch micro_batch(data::TokenBatch& batch, int64_t row, int64_t rows,
                       at::Device device, bool fused) {
  const int64_t begin = row * batch.seq_len;
  const int64_t count = rows * batch.seq_len;
  MicroBatch out;
  out.tokens = rows_of(batch.tokens, begin, count, device);
  out.targets = rows_of(batch.targets, begin, count, device).to(at::kLong);
  out.context.batch = rows;
  out.context.seq = batch.seq_len;
  out.context.fused = fused;
  out.context.positions = rows_of(batch.positions, begin, count, device);
  const auto first = batch.document_start.begin() + begin;
  // All zero is the plain causal mask, which needs no tensor.
  if (std::any_of(first, first + count, [](int32_t start) { return start != 0; })) {
    out.context.document_start =
        rows_of(batch.document_start, begin, count, device).view({rows, batch.seq_len});
  }
  return out;
}

}  // namespace longhaul::infer
