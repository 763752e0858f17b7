#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul::data {

/// The rows of one list column of one record batch: integers of any width in a list, a
/// large list or a list of fixed size. Immutable; any thread may read.
class ListColumn {
 public:
  ListColumn() = default;
  /// `is_mask`: may hold true and false instead, and is for leading_ones() only.
  /// InputError when it is no list of integers or says that it holds nulls. Nothing is
  /// read but the offsets' ends; see Batch in arrow_source.cpp for when the rest is
  /// proved.
  ListColumn(const std::shared_ptr<arrow::Array>& column, const std::string& name,
             const fs::path& file, bool is_mask = false);

  bool present() const { return column_ != nullptr; }
  const arrow::Array& array() const { return *column_; }
  int64_t row_length(int64_t row) const { return row_begin(row + 1) - row_begin(row); }
  /// True when the row lies inside the values.
  bool row_is_inside(int64_t row) const;

  /// Copies `out.size()` values of a row from position `from` on. False when one of them
  /// is neither in [0, limit) nor equal to `also`. 0 < limit <= 2^31 - 1.
  bool copy(int64_t row, int64_t from, std::span<int32_t> out, int64_t limit,
            int64_t also) const;
  /// How many ones a row of zeros and ones begins with; -1 when it is anything but ones
  /// followed by zeros.
  int64_t leading_ones(int64_t row) const;
  /// The first value of a row that copy() would not take, as the file has it.
  std::string first_outside(int64_t row, int64_t limit, int64_t also) const;

 private:
  int64_t row_begin(int64_t row) const {
    if (offsets32_ != nullptr) return offsets32_[row];
    if (offsets64_ != nullptr) return offsets64_[row];
    return first_ + row * fixed_;
  }
  /// Calls use(pointer to the row's values) with their own type.
  template <typename Use>
  auto with_values(int64_t row, Use&& use) const;

  std::shared_ptr<arrow::Array> column_;
  std::shared_ptr<arrow::Array> values_;
  const int32_t* offsets32_ = nullptr;
  const int64_t* offsets64_ = nullptr;
  int64_t fixed_ = 0;
  int64_t first_ = 0;
};

}  // namespace longhaul::data
