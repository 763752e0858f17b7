#pragma once

#include <arrow/array.h>
#include <arrow/array/array_primitive.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/type.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/record.h"

namespace longhaul::data {

/// A pool of memory for Arrow with a limit. An allocation above the limit fails with
/// Arrow's OutOfMemory. The pool must outlive everything that was allocated from the
/// pool.
class LimitedPool {
 public:
  explicit LimitedPool(uint64_t limit,
                       arrow::MemoryPool* from = arrow::system_memory_pool())
      : limit_(limit), counted_(from), capped_(&counted_, static_cast<int64_t>(limit)) {}
  /// Makes the pool of one reader. Its limit is options.max_batch_bytes, and its memory
  /// comes from options.reader_memory, if there is one, which limits all readers
  /// together.
  explicit LimitedPool(const InputOptions& options)
      : LimitedPool(options.max_batch_bytes, options.reader_memory
                                                 ? options.reader_memory->get()
                                                 : arrow::system_memory_pool()) {}
  arrow::MemoryPool* get() { return &capped_; }
  uint64_t limit() const { return limit_; }

 private:
  uint64_t limit_;
  arrow::ProxyMemoryPool counted_;
  arrow::CappedMemoryPool capped_;
};

/// Throws InputError that names the file, unless `status` is ok. For OutOfMemory the
/// message says what the user can do.
void require(const arrow::Status& status, const fs::path& file, std::string_view where,
             const InputOptions& options);
template <typename Value>
Value require(arrow::Result<Value> result, const fs::path& file, std::string_view where,
              const InputOptions& options) {
  require(result.status(), file, where, options);
  return std::move(result).ValueUnsafe();
}

/// Returns whether a type is that of lists of integers. With `is_mask`, lists of true and
/// false count as well.
bool is_integer_list(const arrow::DataType& type, bool is_mask = false);

/// The values of one row of an array of lists.
struct ListRow {
  const arrow::Array* values = nullptr;
  int64_t begin = 0;
  int64_t length = 0;
};
ListRow find_list(const arrow::Array& lists, int64_t row);

/// Calls use(pointer) for an array of integers. The pointer has the type of the array's
/// values and points to the value at `place`.
template <typename Use>
auto with_integers(const arrow::Array& array, int64_t place, const Use& use) {
  const auto of = [&]<typename Type>(std::type_identity<Type>) {
    return use(static_cast<const arrow::NumericArray<Type>&>(array).raw_values() + place);
  };
  switch (array.type_id()) {
    case arrow::Type::INT64:
      return of(std::type_identity<arrow::Int64Type>());
    case arrow::Type::INT32:
      return of(std::type_identity<arrow::Int32Type>());
    case arrow::Type::INT16:
      return of(std::type_identity<arrow::Int16Type>());
    case arrow::Type::INT8:
      return of(std::type_identity<arrow::Int8Type>());
    case arrow::Type::UINT64:
      return of(std::type_identity<arrow::UInt64Type>());
    case arrow::Type::UINT32:
      return of(std::type_identity<arrow::UInt32Type>());
    case arrow::Type::UINT16:
      return of(std::type_identity<arrow::UInt16Type>());
    default:
      return of(std::type_identity<arrow::UInt8Type>());
  }
}

/// The columns of a schema that make the records: options.field, and for lists of ids
/// also `labels` and `attention_mask`. An index of -1 means that the schema lacks the
/// column. The constructor throws InputError when the field is absent, stands twice, or
/// is neither text nor lists of integers.
struct ColumnChoice {
  int field = -1;
  int labels = -1;
  int mask = -1;
  bool ids = false;
  /// The columns of a chat, by index, where options.chats is true.
  std::vector<int> chat;

  ColumnChoice() = default;
  ColumnChoice(const arrow::Schema& schema, const InputOptions& options,
               const fs::path& file);
  /// Returns the indices of the chosen columns that exist, ascending.
  std::vector<int> indices() const;
};

/// Returns the columns of a schema that a chat may consist of. Throws InputError if there
/// are none.
std::vector<int> chat_columns(const arrow::Schema& schema, const fs::path& file);
/// Appends the JSON of a value. A null in a struct is left out, since a file of columns
/// has one wherever a row lacks the member. Returns false for a type that JSON lacks.
bool append_json(const arrow::Array& array, int64_t row, std::string& out);

/// The records of one record batch. The constructor validates the chosen columns in full.
class ColumnRows {
 public:
  ColumnRows() = default;
  /// Takes the columns of `batch` that `choice` names by index. `where` names the batch
  /// in messages.
  ColumnRows(const arrow::RecordBatch& batch, const ColumnChoice& choice,
             const InputOptions& options, const fs::path& file, std::string_view where);
  /// Fills the next record's form, its bytes or ids, and its problem. Returns false after
  /// the last record.
  bool next(RawRecord& record) {
    if (place_ == rows_) return false;
    take(place_++, record);
    return true;
  }

 private:
  void take(int64_t row, RawRecord& record) const;
  void take_chat(int64_t row, RawRecord& record) const;
  void take_ids(int64_t row, RawRecord& record) const;

  int64_t rows_ = 0;
  int64_t place_ = 0;  ///< the row of the next record
  uint64_t limit_ = 0;
  bool ids_ = false;
  std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>> chat_;
  std::shared_ptr<arrow::Array> field_;
  std::shared_ptr<arrow::Array> labels_;
  std::shared_ptr<arrow::Array> mask_;
};

}  // namespace longhaul::data
