#include "longhaul/data/sources/saved_dataset.h"

#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/data/input/arrow_memory.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {
namespace {

/// Memory that reading the headers of a file's messages may allocate. Mapped columns need
/// no memory. Compressed columns would be unpacked into this pool and soon exceed its
/// limit.
constexpr uint64_t kMaxAllocated = uint64_t{64} << 20;
/// The empty message with which a stream ends.
constexpr std::array<uint8_t, 8> kEndOfStream = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0};

[[noreturn]] void fail(const fs::path& file, const std::string& what) {
  fail_input("data", "{}: {}", file.string(), what);
}

void require(const arrow::Status& status, const fs::path& file) {
  require_memory(status, file);
  if (status.IsOutOfMemory()) {
    fail(file,
         "its columns are compressed, and compressed columns are not read in place; save "
         "the data set without compression, or build a token store from it");
  }
  if (!status.ok()) fail(file, "not a readable Arrow file: " + status.ToString());
}

template <typename Value>
Value require(arrow::Result<Value> result, const fs::path& file) {
  require(result.status(), file);
  return std::move(result).ValueUnsafe();
}

ListColumn find_column(const arrow::RecordBatch& batch, const std::string& name,
                       const fs::path& file, bool is_mask = false) {
  const auto column = batch.GetColumnByName(name);
  if (column == nullptr) return {};
  // Validate() checks the sizes of buffers and the first and last offsets. Everything
  // else is checked before the first use of a batch.
  require(column->Validate(), file);
  return {column, name, file, is_mask};
}

/// Throws InputError unless every row lies inside the values, and labels and mask are as
/// long as the ids.
void check_rows(SavedDataset& dataset, const SavedBatch& batch) {
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t length = batch.ids.row_length(row);
    const std::pair<const ListColumn*, const char*> columns[] = {
        {&batch.ids, dataset.field.c_str()},
        {&batch.labels, kLabelsColumn},
        {&batch.attention_mask, kMaskColumn}};
    for (const auto& [column, name] : columns) {
      if (!column->present()) continue;
      if (!column->row_is_inside(row)) {
        dataset.fail_row(batch, batch.first_row + row,
                         fmt::format("not a readable Arrow file: {} points outside its "
                                     "values",
                                     name));
      }
      if (column->row_length(row) == length) continue;
      dataset.fail_row(batch, batch.first_row + row,
                       fmt::format("{} has {} values, but {} has {}", name,
                                   column->row_length(row), dataset.field, length));
    }
    const bool first = batch.first_row == 0 && row == 0;
    dataset.shortest = first ? length : std::min(dataset.shortest, length);
    dataset.longest = std::max(dataset.longest, length);
  }
}

void add_batch(SavedDataset& dataset, const std::shared_ptr<arrow::RecordBatch>& batch) {
  const fs::path& file = dataset.files.back();
  if (batch->num_rows() == 0) return;
  SavedBatch added;
  added.file = dataset.files.size() - 1;
  added.first_row = dataset.rows;
  added.rows = batch->num_rows();
  added.ids = find_column(*batch, dataset.field, file);
  if (dataset.field != kLabelsColumn)
    added.labels = find_column(*batch, kLabelsColumn, file);
  if (dataset.field != kMaskColumn) {
    added.attention_mask = find_column(*batch, kMaskColumn, file, true);
  }
  const bool first = dataset.batches.empty();
  if (!first && (dataset.has_labels != added.labels.present() ||
                 dataset.has_mask != added.attention_mask.present())) {
    fail(file, "its columns differ from those of the files before it");
  }
  dataset.has_labels = added.labels.present();
  dataset.has_mask = added.attention_mask.present();
  check_rows(dataset, added);
  dataset.rows += added.rows;
  dataset.batches.push_back(std::move(added));
  dataset.held.push_back(batch);
}

using Input = std::shared_ptr<arrow::io::MemoryMappedFile>;

/// Returns options that read only the columns that are used.
arrow::ipc::IpcReadOptions read_options(const SavedDataset& dataset, const Input& input,
                                        const fs::path& file) {
  arrow::ipc::IpcReadOptions options;
  options.memory_pool = dataset.pool->get();
  options.use_threads = false;
  const auto reader =
      require(arrow::ipc::RecordBatchStreamReader::Open(input, options), file);
  const arrow::Schema& schema = *reader->schema();
  for (const std::string& name :
       std::set<std::string>{dataset.field, kLabelsColumn, kMaskColumn}) {
    if (const int index = schema.GetFieldIndex(name); index >= 0) {
      options.included_fields.push_back(index);
    }
  }
  if (schema.GetFieldIndex(dataset.field) < 0) {
    fail(file, fmt::format("no column '{}' (its columns: {}); name the column of the ids "
                           "with field, or tokenise the data first and build a token "
                           "store from the text",
                           dataset.field, schema.ToString()));
  }
  require(input->Seek(0), file);
  return options;
}

void add_file(SavedDataset& dataset, const fs::path& file) {
  dataset.files.push_back(file);
  const Input input = require(
      arrow::io::MemoryMappedFile::Open(file.string(), arrow::io::FileMode::READ), file);
  const int64_t size = require(input->GetSize(), file);
  dataset.bytes += static_cast<uint64_t>(size);
  const auto reader = require(arrow::ipc::RecordBatchStreamReader::Open(
                                  input, read_options(dataset, input, file)),
                              file);
  while (true) {
    std::shared_ptr<arrow::RecordBatch> batch;
    require(reader->ReadNext(&batch), file);
    if (batch == nullptr) break;
    add_batch(dataset, batch);
  }
  // A file that was cut between two messages looks like a shorter file.
  const int64_t end = static_cast<int64_t>(kEndOfStream.size());
  const auto tail = size < end ? nullptr : require(input->ReadAt(size - end, end), file);
  if (tail == nullptr || std::memcmp(tail->data(), kEndOfStream.data(), 8) != 0) {
    fail(file, fmt::format("not a readable Arrow file: its {} bytes end without the mark "
                           "of a stream's end: it was cut off; copy it again",
                           size));
  }
}

}  // namespace

std::string saved_fingerprint(const SavedFiles& files, int64_t rows,
                              const std::string& field) {
  std::string identity = files.identity + fmt::format(" {}", rows);
  if (field != kIdsField) identity += " of " + field;
  return hash_hex(identity);
}

SavedDataset open_saved_files(const fs::path& path, const SavedFiles& files,
                              const std::string& field) {
  SavedDataset dataset;
  dataset.path = path;
  dataset.field = field;
  dataset.pool = std::make_shared<LimitedPool>(kMaxAllocated);
  for (const fs::path& file : files.paths) add_file(dataset, file);
  if (dataset.rows == 0) fail(path, "the dataset has no rows");
  dataset.fingerprint = saved_fingerprint(files, dataset.rows, field);
  return dataset;
}

SavedDataset open_saved_dataset(const fs::path& path, const std::string& field) {
  return open_saved_files(path, read_saved_files(path), field);
}

const SavedBatch& SavedDataset::batch_of(int64_t row) const {
  const auto after = std::upper_bound(
      batches.begin(), batches.end(), row,
      [](int64_t wanted, const SavedBatch& part) { return wanted < part.first_row; });
  const SavedBatch& batch = *(after - 1);
  std::call_once(*batch.checked, [&] {
    for (const ListColumn* column : {&batch.ids, &batch.labels, &batch.attention_mask}) {
      if (column->present()) require(column->array().ValidateFull(), files[batch.file]);
    }
  });
  return batch;
}

void SavedDataset::fail_row(const SavedBatch& batch, int64_t row,
                            const std::string& what) const {
  int64_t first = batch.first_row;
  for (const SavedBatch& other : batches) {
    if (other.file != batch.file) continue;
    first = other.first_row;
    break;
  }
  fail(files[batch.file],
       fmt::format("row {} (row {} of {}): {}", row - first, row, path.string(), what));
}

}  // namespace longhaul::data
