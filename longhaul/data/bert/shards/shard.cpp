#include "longhaul/data/bert/shards/shard.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul::data {
namespace {

/// Throws InputError for the first value outside [0, end).
template <typename Value>
void check_range(std::span<const Value> values, int64_t end, const char* name,
                 int64_t row, const fs::path& path) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= 0 && int64_t{values[i]} < end) continue;
    fail_input("data",
               "{}: row {}: {}[{}] is {}, expected 0 to {}; the file is damaged or was "
               "made for another model",
               path.string(), row, name, i, values[i], end - 1);
  }
}

/// Throws InputError unless a row is tokens and then padding, so that one number tells
/// attention where the tokens end.
void check_padding(const BertShard& shard, int64_t row, const fs::path& path) {
  const auto fail = [&](const std::string& what) {
    fail_input("data", "{}: row {}: {}; the file is damaged", path.string(), row, what);
  };
  const auto mask = shard.input_mask(row);
  const auto padding = std::ranges::find(mask, 0);
  if (padding == mask.begin()) fail("input_mask leaves out the first token");
  const auto length = padding - mask.begin();
  if (const auto one = std::find(padding, mask.end(), 1); one != mask.end()) {
    fail(fmt::format("input_mask[{}] is 1 after the padding, which begins at {}",
                     one - mask.begin(), length));
  }
  const auto positions = shard.masked_lm_positions(row);
  for (size_t i = 0; i < positions.size() && positions[i] != 0; ++i) {
    if (positions[i] < length) continue;
    fail(
        fmt::format("masked_lm_positions[{}] is {}, after the end of the row's {} tokens",
                    i, positions[i], length));
  }
}

}  // namespace

int64_t column_width(const ShardShape& shape, ShardColumn column) {
  if (column == ShardColumn::NextSentenceLabels) return 1;
  const bool masked =
      column == ShardColumn::MaskedLmPositions || column == ShardColumn::MaskedLmIds;
  return masked ? shape.predictions : shape.seq_len;
}

uint64_t column_bytes(const ShardShape& shape, const ColumnForm& form) {
  return static_cast<uint64_t>(shape.rows) *
         static_cast<uint64_t>(column_width(shape, form.column)) *
         static_cast<uint64_t>(form.bytes);
}

uint64_t shard_bytes(const ShardShape& shape) {
  uint64_t sum = 0;
  for (const ColumnForm& form : kColumnForms) sum += column_bytes(shape, form);
  return sum;
}

std::string shape_problem(const ShardShape& shape) {
  if (shape.rows < 1 || shape.rows > kMaxShardRows) {
    return fmt::format("{} rows, expected 1 to {}", shape.rows, kMaxShardRows);
  }
  if (shape.seq_len < 1 || shape.seq_len > kMaxShardLength) {
    return fmt::format("rows of {} tokens, expected 1 to {}", shape.seq_len,
                       kMaxShardLength);
  }
  if (shape.predictions < 1 || shape.predictions > shape.seq_len) {
    return fmt::format("{} masked positions a row, expected 1 to {}", shape.predictions,
                       shape.seq_len);
  }
  if (shard_bytes(shape) > kMaxShardBytes) {
    return fmt::format("{} rows take {} bytes, at most {} are read; write smaller shards",
                       shape.rows, shard_bytes(shape), kMaxShardBytes);
  }
  return {};
}

BertShard::BertShard(const ShardShape& shape, std::string bytes)
    : shape_(shape), bytes_(std::move(bytes)) {
  const std::string problem = shape_problem(shape);
  if (!problem.empty() || bytes_.size() != shard_bytes(shape)) {
    fail_input("data",
               "a shard of {} bytes with {} rows of {} tokens and {} predictions{}{}",
               bytes_.size(), shape.rows, shape.seq_len, shape.predictions,
               problem.empty() ? "" : ": ", problem);
  }
  size_t begin = 0;
  for (const ColumnForm& form : kColumnForms) {
    begins_[static_cast<size_t>(form.column)] = begin;
    begin += column_bytes(shape, form);
  }
}

void check_shard(const BertShard& shard, int64_t vocab_size, const fs::path& path) {
  const ShardShape& shape = shard.shape();
  for (int64_t row = 0; row < shape.rows; ++row) {
    check_range(shard.input_ids(row), vocab_size, "input_ids", row, path);
    check_range(shard.input_mask(row), 2, "input_mask", row, path);
    check_range(shard.segment_ids(row), 2, "segment_ids", row, path);
    check_range(shard.masked_lm_positions(row), shape.seq_len, "masked_lm_positions", row,
                path);
    check_range(shard.masked_lm_ids(row), vocab_size, "masked_lm_ids", row, path);
    const int8_t next = shard.next_sentence_label(row);
    check_range(std::span(&next, 1), 2, "next_sentence_labels", row, path);
    check_padding(shard, row, path);
  }
}

}  // namespace longhaul::data
