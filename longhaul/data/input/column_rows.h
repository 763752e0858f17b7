#pragma once

#include <arrow/array.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/type.h>

#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/record.h"

namespace longhaul::data {

/// Arrow's memory with a limit, above which an allocation fails with Arrow's OutOfMemory.
/// Must outlive what was allocated.
class LimitedPool {
 public:
  explicit LimitedPool(uint64_t limit,
                       arrow::MemoryPool* from = arrow::system_memory_pool())
      : counted_(from), capped_(&counted_, static_cast<int64_t>(limit)) {}
  /// Of one reader: its own limit, inside that of all readers.
  explicit LimitedPool(const InputOptions& options);
  arrow::MemoryPool* get() { return &capped_; }

 private:
  arrow::ProxyMemoryPool counted_;
  arrow::CappedMemoryPool capped_;
};

class ReaderMemory {
 public:
  explicit ReaderMemory(uint64_t bytes) : pool_(bytes), bytes_(bytes) {}
  arrow::MemoryPool* get() { return pool_.get(); }
  uint64_t bytes() const { return bytes_; }

 private:
  LimitedPool pool_;
  uint64_t bytes_;
};

inline LimitedPool::LimitedPool(const InputOptions& options)
    : LimitedPool(options.max_batch_bytes, options.reader_memory
                                               ? options.reader_memory->get()
                                               : arrow::system_memory_pool()) {}

/// Throws InputError that names the file, unless ok. OutOfMemory says what to do.
void require(const arrow::Status& status, const fs::path& file, std::string_view where,
             const InputOptions& options);
template <typename Value>
Value require(arrow::Result<Value> result, const fs::path& file, std::string_view where,
              const InputOptions& options) {
  require(result.status(), file, where, options);
  return std::move(result).ValueUnsafe();
}

/// Which columns of a schema make the records: options.field, and beside ids `labels` and
/// `attention_mask` where there are such. InputError when the field is absent, stands
/// twice, or is neither text nor lists of integers.
struct ColumnChoice {
  int field = -1;
  int labels = -1;
  int mask = -1;
  bool ids = false;

  ColumnChoice() = default;
  ColumnChoice(const arrow::Schema& schema, const InputOptions& options,
               const fs::path& file);
  /// The indices that are there, ascending.
  std::vector<int> indices() const;
};

/// The records of one record batch, whose chosen columns it validates in full.
class ColumnRows {
 public:
  ColumnRows() = default;
  /// The choice's indices count in `batch`. `where` names the batch for messages.
  ColumnRows(const arrow::RecordBatch& batch, const ColumnChoice& choice,
             const InputOptions& options, const fs::path& file, std::string_view where);
  int64_t rows() const { return rows_; }
  /// Fills form, bytes or ids, and problem.
  void take(int64_t row, RawRecord& record) const;

 private:
  void take_ids(int64_t row, RawRecord& record) const;

  int64_t rows_ = 0;
  uint64_t limit_ = 0;
  bool ids_ = false;
  std::shared_ptr<arrow::Array> field_;
  std::shared_ptr<arrow::Array> labels_;
  std::shared_ptr<arrow::Array> mask_;
};

}  // namespace longhaul::data
