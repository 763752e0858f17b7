#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul::data {

/// Rows of a BERT shard and their lengths.
struct ShardShape {
  int64_t rows = 0;
  int64_t seq_len = 0;      ///< S: tokens of a row, padding included
  int64_t predictions = 0;  ///< P: most masked positions of a row
  bool operator==(const ShardShape&) const = default;
};

/// The columns of a shard, in the order in which BertShard holds them (wide ones first,
/// so that all lie aligned).
enum class ShardColumn : uint8_t {
  InputIds,
  MaskedLmPositions,
  MaskedLmIds,
  InputMask,
  SegmentIds,
  NextSentenceLabels,
};

/// A column as the file has it.
struct ColumnForm {
  ShardColumn column;
  const char* name;
  int bytes;  ///< of one signed integer: 4 or 1
  int rank;   ///< 2, or 1: one value per row
};
inline constexpr std::array<ColumnForm, 6> kColumnForms = {{
    {ShardColumn::InputIds, "input_ids", 4, 2},
    {ShardColumn::MaskedLmPositions, "masked_lm_positions", 4, 2},
    {ShardColumn::MaskedLmIds, "masked_lm_ids", 4, 2},
    {ShardColumn::InputMask, "input_mask", 1, 2},
    {ShardColumn::SegmentIds, "segment_ids", 1, 2},
    {ShardColumn::NextSentenceLabels, "next_sentence_labels", 1, 1},
}};

/// Values that a row has in a column.
int64_t column_width(const ShardShape& shape, ShardColumn column);
/// Bytes of a column, and of all, in memory. The shape is within the limits below.
uint64_t column_bytes(const ShardShape& shape, const ColumnForm& form);
uint64_t shard_bytes(const ShardShape& shape);

inline constexpr int64_t kMaxShardRows = int64_t{1} << 28;
inline constexpr int64_t kMaxShardLength = 65536;
/// The largest shard that is read, in memory.
inline constexpr uint64_t kMaxShardBytes = uint64_t{3} << 30;

/// What is wrong with a shape, or an empty string: every extent at least 1 and within the
/// limits, the whole within kMaxShardBytes.
std::string shape_problem(const ShardShape& shape);

/// Pretraining examples as NVIDIA's recipe stores them, row-major. Immutable.
class BertShard {
 public:
  /// `bytes` are the columns one after the other, in host byte order. InputError when
  /// their size is not the shape's.
  BertShard(const ShardShape& shape, std::string bytes);

  const ShardShape& shape() const { return shape_; }
  /// The columns as the constructor takes them.
  const std::string& bytes() const { return bytes_; }
  std::span<const int32_t> input_ids(int64_t row) const;
  std::span<const int8_t> input_mask(int64_t row) const;
  std::span<const int8_t> segment_ids(int64_t row) const;
  std::span<const int32_t> masked_lm_positions(int64_t row) const;
  std::span<const int32_t> masked_lm_ids(int64_t row) const;
  int8_t next_sentence_label(int64_t row) const;
  std::span<const int8_t> next_sentence_labels() const;

 private:
  template <typename Value>
  std::span<const Value> row_of(ShardColumn column, int64_t row) const;
  ShardShape shape_;
  std::string bytes_;
  std::array<size_t, kColumnForms.size()> begins_{};
};

/// InputError names file, row and column of the first value out of range: ids in
/// [0, vocab_size), masks, segments and next-sentence labels 0 or 1, positions in
/// [0, seq_len). In each row the mask is ones and then zeros, at least one of the former,
/// and masked positions, up to the first 0, lie among them.
void check_shard(const BertShard& shard, int64_t vocab_size, const fs::path& path);

}  // namespace longhaul::data
