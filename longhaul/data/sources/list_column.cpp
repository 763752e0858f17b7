#include "longhaul/data/sources/list_column.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

[[noreturn]] void refuse_column(const fs::path& file, const std::string& what) {
  fail_input("data", "{}: {}", file.string(), what);
}

}  // namespace

ListColumn::ListColumn(const std::shared_ptr<arrow::Array>& column,
                       const std::string& name, const fs::path& file, bool is_mask)
    : column_(column) {
  if (column->null_count() != 0) {
    refuse_column(file, fmt::format("column '{}' has {} null rows; remove them", name,
                                    column->null_count()));
  }
  if (!is_integer_list(*column->type(), is_mask)) {
    refuse_column(file, fmt::format("column '{}' is {}, not lists of integers", name,
                                    column->type()->ToString()));
  }
  const int64_t nulls = find_list(*column, 0).values->null_count();
  if (nulls != 0) {
    refuse_column(
        file, fmt::format("column '{}' is {} with {} null values, not lists of integers",
                          name, column->type()->ToString(), nulls));
  }
}

bool ListColumn::row_is_inside(int64_t row) const {
  const auto [values, begin, length] = find_list(*column_, row);
  return begin >= 0 && length >= 0 && begin <= values->length() - length;
}

bool ListColumn::copy(int64_t row, int64_t from, std::span<int32_t> out, int64_t limit,
                      int64_t also) const {
  const ListRow found = find_list(*column_, row);
  return with_integers(*found.values, found.begin + from, [&](const auto* values) {
    // One pass without branches, in the width of the values. A negative value becomes a
    // large value when it is converted to unsigned. A type that is unsigned in the file
    // has no negative values.
    using Value = std::remove_cvref_t<decltype(*values)>;
    using Word = std::conditional_t<sizeof(Value) == 8, uint64_t, uint32_t>;
    const auto end = static_cast<Word>(limit);
    const auto allowed = static_cast<Word>(std::is_signed_v<Value> ? also : 0);
    Word bad = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const auto value = static_cast<Word>(values[i]);
      bad |= static_cast<Word>(value >= end) & static_cast<Word>(value != allowed);
      out[i] = static_cast<int32_t>(value);
    }
    return bad == 0;
  });
}

int64_t ListColumn::leading_ones(int64_t row) const {
  const auto [list, begin, length] = find_list(*column_, row);
  if (list->type_id() == arrow::Type::BOOL) {
    const auto& bits = static_cast<const arrow::BooleanArray&>(*list);
    int64_t in_front = 0;
    while (in_front < length && bits.Value(begin + in_front)) ++in_front;
    for (int64_t i = in_front; i < length; ++i) {
      if (bits.Value(begin + i)) return -1;
    }
    return in_front;
  }
  return with_integers(*list, begin, [&](const auto* values) {
    int64_t ones = 0;
    int64_t zeros = 0;
    for (int64_t i = 0; i < length; ++i) {
      ones += values[i] == 1 ? 1 : 0;
      zeros += values[i] == 0 ? 1 : 0;
    }
    if (ones + zeros != length) return int64_t{-1};
    int64_t in_front = ones;
    if (zeros > 0) {
      in_front =
          std::find_if(values, values + length, [](auto v) { return v != 1; }) - values;
    }
    return in_front == ones ? ones : int64_t{-1};
  });
}

std::string ListColumn::first_outside(int64_t row, int64_t limit, int64_t also) const {
  const auto [list, begin, length] = find_list(*column_, row);
  return with_integers(*list, begin, [&](const auto* values) {
    for (int64_t i = 0; i < length; ++i) {
      const auto value = values[i];
      const bool ignored = std::is_signed_v<std::remove_cvref_t<decltype(*values)>> &&
                           std::cmp_equal(value, also);
      const bool outside =
          std::cmp_less(value, 0) || std::cmp_greater_equal(value, limit);
      if (outside && !ignored) return std::to_string(value);
    }
    return std::string("none");
  });
}

}  // namespace longhaul::data
