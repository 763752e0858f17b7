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

/// The columns of a shard, in the order in which BertShard holds them: columns of wide
/// values come first, so that all columns lie aligned.
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
  int rank;   ///< 2; 1 for a column with one value a row
};
inline constexpr std::array<ColumnForm, 6> kColumnForms = {{
    {ShardColumn::InputIds, "input_ids", 4, 2},
    {ShardColumn::MaskedLmPositions, "masked_lm_positions", 4, 2},
    {ShardColumn::MaskedLmIds, "masked_lm_ids", 4, 2},
    {ShardColumn::InputMask, "input_mask", 1, 2},
    {ShardColumn::SegmentIds, "segment_ids", 1, 2},
    {ShardColumn::NextSentenceLabels, "next_sentence_labels", 1, 1},
}};

/// Returns how many values a row has in a column.
int64_t column_width(const ShardShape& shape, ShardColumn column);
/// Return the bytes in memory of one column and of all columns. The shape is within the
/// limits below.
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
  /// `bytes` holds the columns one after the other, in host byte order. InputError when
  /// its size does not fit the shape.
  BertShard(const ShardShape& shape, std::string bytes);

  const ShardShape& shape() const { return shape_; }
  /// The columns as the constructor takes them.
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
  /// The bytes of all rows of a column.
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

/// InputError names file, row and column of the first value that is out of range: ids in
/// [0, vocab_size), masks, segments and next-sentence labels 0 or 1, positions in
/// [0, seq_len). In each row the mask is at least one 1 and then zeros, and the masked
/// positions, up to the first 0, lie where the mask is 1.
void check_shard(const BertShard& shard, int64_t vocab_size, const fs::path& path);

}  // namespace longhaul::data
