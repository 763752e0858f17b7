#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"

namespace longhaul::data {

/// The number of rows of a BERT shard, and the lengths of a row.
struct ShardShape {
  int64_t rows = 0;
  int64_t seq_len = 0;      ///< tokens of a row, padding included
  int64_t predictions = 0;  ///< the most masked positions that a row can have
  bool operator==(const ShardShape&) const = default;
};

/// The columns of a shard, in the order in which BertShard holds the columns. Columns of
/// wide values come first, so that all columns are aligned.
enum class ShardColumn : uint8_t {
  InputIds,
  MaskedLmPositions,
  MaskedLmIds,
  InputMask,
  SegmentIds,
  NextSentenceLabels,
};

/// The form that a column has in a file.
struct ColumnForm {
  ShardColumn column;
  const char* name;
  int bytes;  ///< bytes of one signed integer: 4 or 1
  /// 2, or 1 for a column with one value in a row.
  int rank;
};
inline constexpr std::array<ColumnForm, 6> kColumnForms = {{
    {ShardColumn::InputIds, "input_ids", 4, 2},
    {ShardColumn::MaskedLmPositions, "masked_lm_positions", 4, 2},
    {ShardColumn::MaskedLmIds, "masked_lm_ids", 4, 2},
    {ShardColumn::InputMask, "input_mask", 1, 2},
    {ShardColumn::SegmentIds, "segment_ids", 1, 2},
    {ShardColumn::NextSentenceLabels, "next_sentence_labels", 1, 1},
}};

/// Returns the number of values that a row has in a column.
int64_t column_width(const ShardShape& shape, ShardColumn column);
/// Returns the bytes of one column in memory; shard_bytes() returns the bytes of all
/// columns. The shape must be within the limits below.
uint64_t column_bytes(const ShardShape& shape, const ColumnForm& form);
uint64_t shard_bytes(const ShardShape& shape);

inline constexpr int64_t kMaxShardRows = int64_t{1} << 28;
inline constexpr int64_t kMaxShardLength = 65536;
/// The bytes in memory of the largest shard that is read.
inline constexpr uint64_t kMaxShardBytes = uint64_t{3} << 30;

/// Returns what is wrong with a shape, or an empty string when every extent is at least 1
/// and within the limits, and the whole is within kMaxShardBytes.
std::string shape_problem(const ShardShape& shape);

/// Pretraining examples as NVIDIA's recipe stores them, row-major. Immutable.
class BertShard {
 public:
  /// Takes the columns one after the other, in host byte order. Throws InputError when
  /// the size of `bytes` does not fit the shape.
  BertShard(const ShardShape& shape, std::string bytes);

  const ShardShape& shape() const { return shape_; }
  /// Returns the columns in the constructor's format.
  const std::string& bytes() const { return bytes_; }
  std::span<const int32_t> input_ids(int64_t row) const {
    return row_of<int32_t>(ShardColumn::InputIds, row);
  }
  std::span<const int8_t> input_mask(int64_t row) const {
    return row_of<int8_t>(ShardColumn::InputMask, row);
  }
  std::span<const int8_t> segment_ids(int64_t row) const {
    return row_of<int8_t>(ShardColumn::SegmentIds, row);
  }
  std::span<const int32_t> masked_lm_positions(int64_t row) const {
    return row_of<int32_t>(ShardColumn::MaskedLmPositions, row);
  }
  std::span<const int32_t> masked_lm_ids(int64_t row) const {
    return row_of<int32_t>(ShardColumn::MaskedLmIds, row);
  }
  int8_t next_sentence_label(int64_t row) const {
    return row_of<int8_t>(ShardColumn::NextSentenceLabels, row)[0];
  }
  /// Returns the address of the first value of a column, whose rows lie one after the
  /// other.
  const char* column(ShardColumn column) const {
    return bytes_.data() + begins_[static_cast<size_t>(column)];
  }

 private:
  template <typename Value>
  std::span<const Value> row_of(ShardColumn column, int64_t row) const {
    LH_CHECK(row >= 0 && row < shape_.rows, "data", "row {} of a shard of {}", row,
             shape_.rows);
    const auto width = static_cast<size_t>(column_width(shape_, column));
    const auto* const values = reinterpret_cast<const Value*>(this->column(column));
    return {values + static_cast<size_t>(row) * width, width};
  }
  ShardShape shape_;
  std::string bytes_;
  std::array<size_t, kColumnForms.size()> begins_{};
};

/// Checks all values of a shard. Throws InputError with file, row and column of the first
/// value that is out of range. Ids must be in [0, vocab_size) and positions in [0,
/// seq_len). Masks, segments and next-sentence labels must be 0 or 1. In each row the
/// mask must be at least one 1 and then zeros, and the masked positions up to the first 0
/// must lie where the mask is 1.
void check_shard(const BertShard& shard, int64_t vocab_size, const fs::path& path);

}  // namespace longhaul::data
