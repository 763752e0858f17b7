#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/data/input/column_rows.h"

namespace longhaul::data {

/// The rows of one list column of one record batch, for SavedDataset. The column holds
/// lists, large lists or lists of fixed size, with integers of any width. Immutable; any
/// thread may read.
class ListColumn {
 public:
  ListColumn() = default;
  /// With `is_mask` the column may also hold true and false, and then only leading_ones()
  /// may read its values. Throws InputError when the column is no list of integers or
  /// says that it holds nulls. The column must have a row. Only the first and the last
  /// offset are checked; SavedDataset::batch_of validates the other offsets.
  ListColumn(const std::shared_ptr<arrow::Array>& column, const std::string& name,
             const fs::path& file, bool is_mask = false);

  bool present() const { return column_ != nullptr; }
  const arrow::Array& array() const { return *column_; }
  int64_t row_length(int64_t row) const { return find_list(*column_, row).length; }
  /// Returns true when the row lies inside the values.
  bool row_is_inside(int64_t row) const;

  /// Copies `out.size()` values of a row from position `from` on. Returns false when a
  /// value is neither in [0, limit) nor equal to `also`. 0 < limit <= 2^31 - 1.
  bool copy(int64_t row, int64_t from, std::span<int32_t> out, int64_t limit,
            int64_t also) const;
  /// Returns how many ones a row begins with; -1 when the row is not some ones followed
  /// by zeros only.
  int64_t leading_ones(int64_t row) const;
  /// Returns the first value of a row that copy() would refuse, as text.
  std::string first_outside(int64_t row, int64_t limit, int64_t also) const;

 private:
  std::shared_ptr<arrow::Array> column_;
};

}  // namespace longhaul::data
