#include "longhaul/data/sources/arrow_source.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/data/sources/rows.h"

namespace longhaul::data {
namespace {

constexpr size_t kMaxFiles = 1'000'000;

[[noreturn]] void fail(const fs::path& file, const std::string& what) {
  throw InputError("data", fmt::format("{}: {}", file.string(), what));
}

void require(const arrow::Status& status, const fs::path& file) {
  if (!status.ok()) fail(file, "not a readable Arrow file: " + status.ToString());
}

template <typename Value>
Value require(arrow::Result<Value> result, const fs::path& file) {
  require(result.status(), file);
  return std::move(result).ValueUnsafe();
}

/// The rows of one list column of one record batch: integers of any width.
class ListColumn {
 public:
  ListColumn() = default;
  ListColumn(const std::shared_ptr<arrow::Array>& column, const std::string& name,
             const fs::path& file)
      : column_(column) {
    if (column->null_count() != 0) {
      fail(file, fmt::format("column '{}' has {} null rows; remove them", name,
                             column->null_count()));
    }
    switch (column->type_id()) {
      case arrow::Type::LIST:
        offsets32_ = static_cast<const arrow::ListArray&>(*column).raw_value_offsets();
        values_ = static_cast<const arrow::ListArray&>(*column).values();
        break;
      case arrow::Type::LARGE_LIST:
        offsets64_ =
            static_cast<const arrow::LargeListArray&>(*column).raw_value_offsets();
        values_ = static_cast<const arrow::LargeListArray&>(*column).values();
        break;
      case arrow::Type::FIXED_SIZE_LIST: {
        const auto& list = static_cast<const arrow::FixedSizeListArray&>(*column);
        fixed_ = list.value_length();
        first_ = list.value_offset(0);
        values_ = list.values();
        break;
      }
      default:
        fail(file, fmt::format("column '{}' is {}, not lists of integers", name,
                               column->type()->ToString()));
    }
    if (!arrow::is_integer(values_->type_id()) || values_->null_count() != 0) {
      fail(file,
           fmt::format("column '{}' is {} with {} null values, not lists of integers",
                       name, column->type()->ToString(), values_->null_count()));
    }
  }

  bool present() const { return column_ != nullptr; }
  int64_t row_begin(int64_t row) const {
    if (offsets32_ != nullptr) return offsets32_[row];
    if (offsets64_ != nullptr) return offsets64_[row];
    return first_ + row * fixed_;
  }
  int64_t row_length(int64_t row) const { return row_begin(row + 1) - row_begin(row); }

  /// Calls visit(position, value) for each value of a row.
  template <typename Visit>
  void visit(int64_t row, Visit&& visit) const {
    const int64_t begin = row_begin(row);
    const int64_t length = row_length(row);
    switch (values_->type_id()) {
      case arrow::Type::INT64:
        return walk<arrow::Int64Array>(begin, length, visit);
      case arrow::Type::INT32:
        return walk<arrow::Int32Array>(begin, length, visit);
      case arrow::Type::INT16:
        return walk<arrow::Int16Array>(begin, length, visit);
      case arrow::Type::INT8:
        return walk<arrow::Int8Array>(begin, length, visit);
      case arrow::Type::UINT64:
        return walk<arrow::UInt64Array>(begin, length, visit);
      case arrow::Type::UINT32:
        return walk<arrow::UInt32Array>(begin, length, visit);
      case arrow::Type::UINT16:
        return walk<arrow::UInt16Array>(begin, length, visit);
      default:
        return walk<arrow::UInt8Array>(begin, length, visit);
    }
  }

 private:
  template <typename Array, typename Visit>
  void walk(int64_t begin, int64_t length, Visit& visit) const {
    const auto* values = static_cast<const Array&>(*values_).raw_values() + begin;
    for (int64_t i = 0; i < length; ++i) {
      // Above the range of int64 it wraps to a negative value, which no check lets pass.
      visit(i, static_cast<int64_t>(values[i]));
    }
  }

  std::shared_ptr<arrow::Array> column_;
  std::shared_ptr<arrow::Array> values_;
  const int32_t* offsets32_ = nullptr;
  const int64_t* offsets64_ = nullptr;
  int64_t fixed_ = 0;
  int64_t first_ = 0;
};

struct Batch {
  int64_t first_row = 0;
  int64_t rows = 0;
  ListColumn input_ids;
  ListColumn labels;
  ListColumn attention_mask;
};

/// All files of a saved dataset, mapped and checked.
struct Dataset {
  fs::path path;
  std::vector<Batch> batches;
  int64_t rows = 0;
  size_t files = 0;
  uint64_t bytes = 0;
  std::string fingerprint;
  bool has_labels = false;
  bool has_mask = false;
  /// Keeps the mapped files alive.
  std::vector<std::shared_ptr<arrow::RecordBatch>> held;
};

ListColumn find_column(const arrow::RecordBatch& batch, const std::string& name,
                       const fs::path& file) {
  const auto column = batch.GetColumnByName(name);
  return column == nullptr ? ListColumn() : ListColumn(column, name, file);
}

void add_batch(Dataset& dataset, const std::shared_ptr<arrow::RecordBatch>& batch,
               const fs::path& file) {
  // Offsets and lengths of an outside file are not trusted before this.
  require(batch->ValidateFull(), file);
  if (batch->num_rows() == 0) return;
  Batch added{dataset.rows, batch->num_rows(), find_column(*batch, "input_ids", file),
              find_column(*batch, "labels", file),
              find_column(*batch, "attention_mask", file)};
  if (!added.input_ids.present()) {
    fail(file, fmt::format("no column 'input_ids' (its columns: {}); tokenise the data "
                           "first, or build a token store from the text",
                           batch->schema()->ToString()));
  }
  const bool first = dataset.batches.empty();
  if (!first && (dataset.has_labels != added.labels.present() ||
                 dataset.has_mask != added.attention_mask.present())) {
    fail(file, "its columns differ from those of the files before it");
  }
  dataset.has_labels = added.labels.present();
  dataset.has_mask = added.attention_mask.present();
  dataset.rows += added.rows;
  dataset.batches.push_back(std::move(added));
  dataset.held.push_back(batch);
}

void add_file(Dataset& dataset, const fs::path& file) {
  const auto input = require(
      arrow::io::MemoryMappedFile::Open(file.string(), arrow::io::FileMode::READ), file);
  dataset.bytes += static_cast<uint64_t>(require(input->GetSize(), file));
  const auto reader = require(arrow::ipc::RecordBatchStreamReader::Open(input), file);
  while (true) {
    std::shared_ptr<arrow::RecordBatch> batch;
    require(reader->ReadNext(&batch), file);
    if (batch == nullptr) break;
    add_batch(dataset, batch, file);
  }
  ++dataset.files;
}

Dataset open_dataset(const fs::path& path) {
  Dataset dataset;
  dataset.path = path;
  const fs::path state_file = path / "state.json";
  const Json state = read_json(state_file);
  if (!state.is_object()) fail(state_file, "an object was expected");
  const Json files = state.value("_data_files", Json::array());
  if (!files.is_array() || files.empty() || files.size() > kMaxFiles) {
    fail(state_file, "no list '_data_files' of the Arrow files; save the dataset again");
  }
  if (const auto indices = state.find("_indices_data_files");
      indices != state.end() && indices->is_array() && !indices->empty()) {
    fail(state_file,
         "its rows are a selection by index; save it again after "
         "dataset.flatten_indices()");
  }
  std::string identity = state.value("_fingerprint", Json()).dump();
  for (const Json& entry : files) {
    if (!entry.is_object() || !entry.contains("filename") ||
        !entry["filename"].is_string()) {
      fail(state_file, "an entry of '_data_files' has no file name");
    }
    const auto name = entry["filename"].get<std::string>();
    const fs::path file = join_inside(path, name, "data");
    if (!fs::exists(file)) {
      fail(file, "missing, but state.json names it; copy the whole directory again");
    }
    add_file(dataset, file);
    identity += fmt::format(" {} {}", name, fs::file_size(file));
  }
  if (dataset.rows == 0) fail(path, "a dataset without rows");
  dataset.fingerprint = hash_hex(identity + fmt::format(" {}", dataset.rows));
  return dataset;
}

[[noreturn]] void fail_length(const Dataset& dataset, int64_t row, int64_t found,
                              int64_t first, int64_t wanted) {
  if (found != first || row != 0) {
    fail(dataset.path,
         fmt::format(
             "row {} has {} tokens, row 0 has {}; all rows must have one length: cut "
             "the data into blocks of data.seq_len = {}, or build a token store "
             "from the text",
             row, found, first, wanted));
  }
  fail(dataset.path, fmt::format("its rows have {} tokens, data.seq_len is {}; set "
                                 "data.seq_len = {}, or cut the data anew",
                                 found, wanted, found));
}

/// The mask's ones come first; returns how many.
int64_t unmasked_length(const ListColumn& mask, int64_t row, int64_t length) {
  int64_t ones = 0;
  bool in_order = true;
  mask.visit(row, [&](int64_t position, int64_t value) {
    in_order = in_order && (value == 0 || (value == 1 && ones == position));
    ones += value == 1 ? 1 : 0;
  });
  return in_order ? ones : -length;
}

class SavedDatasetSource final : public TokenSource {
 public:
  SavedDatasetSource(const fs::path& path, int64_t length)
      : dataset_(open_dataset(path)), length_(length) {
    for (const Batch& batch : dataset_.batches) {
      for (int64_t row = 0; row < batch.rows; ++row) check_row(batch, row);
    }
  }

  int64_t num_sequences() const override { return dataset_.rows; }
  int64_t seq_len() const override { return length_; }
  int64_t max_token_id() const override { return largest_ + 1; }
  std::string fingerprint() const override { return dataset_.fingerprint; }

  void read(int64_t index, TokenBatch& batch, int64_t row) const override {
    const BatchRow to = batch_row(*this, index, batch, row);
    const auto after = std::upper_bound(
        dataset_.batches.begin(), dataset_.batches.end(), index,
        [](int64_t wanted, const Batch& part) { return wanted < part.first_row; });
    const Batch& from = *(after - 1);
    const int64_t local = index - from.first_row;
    from.input_ids.visit(local, [&](int64_t i, int64_t id) {
      to.tokens[static_cast<size_t>(i)] = static_cast<int32_t>(id);
    });
    const ListColumn& labels = dataset_.has_labels ? from.labels : from.input_ids;
    labels.visit(local, [&](int64_t i, int64_t id) {
      if (i > 0) to.targets[static_cast<size_t>(i - 1)] = static_cast<int32_t>(id);
    });
    to.targets.back() = kIgnore;
    if (dataset_.has_mask) {
      const int64_t valid = unmasked_length(from.attention_mask, local, length_);
      // Position i predicts i + 1: from the last token on there is nothing to predict.
      for (auto i = static_cast<size_t>(std::max<int64_t>(valid - 1, 0));
           i < to.targets.size(); ++i) {
        to.targets[i] = kIgnore;
      }
    }
    fill_plain_positions(to);
  }

  std::string describe() const override {
    return fmt::format("save_to_disk directory {}: {} sequences of {} in {} files{}{}",
                       dataset_.path.string(), grouped(dataset_.rows), length_,
                       dataset_.files, dataset_.has_labels ? "" : ", without labels",
                       padded_ == 0
                           ? std::string()
                           : fmt::format(", {} padded tokens", grouped(padded_)));
  }

 private:
  void check_row(const Batch& batch, int64_t row) {
    const int64_t place = batch.first_row + row;
    if (batch.input_ids.row_length(row) != length_) {
      fail_length(dataset_, place, batch.input_ids.row_length(row),
                  dataset_.batches.front().input_ids.row_length(0), length_);
    }
    check_ids(batch.input_ids, "input_ids", row, place, false);
    if (dataset_.has_labels) check_ids(batch.labels, "labels", row, place, true);
    if (!dataset_.has_mask) return;
    check_width(batch.attention_mask, "attention_mask", row, place);
    const int64_t valid = unmasked_length(batch.attention_mask, row, length_);
    if (valid < 0) {
      fail(dataset_.path, fmt::format("row {}: attention_mask is not ones followed by "
                                      "zeros; pad at the end of a row only",
                                      place));
    }
    padded_ += length_ - valid;
  }

  void check_width(const ListColumn& column, const char* name, int64_t row,
                   int64_t place) const {
    if (column.row_length(row) == length_) return;
    fail(dataset_.path, fmt::format("row {}: {} has {} values, input_ids {}", place, name,
                                    column.row_length(row), length_));
  }

  void check_ids(const ListColumn& column, const char* name, int64_t row, int64_t place,
                 bool may_ignore) {
    check_width(column, name, row, place);
    int64_t lowest = 0;
    int64_t highest = 0;
    column.visit(row, [&](int64_t, int64_t id) {
      if (may_ignore && id == kIgnore) return;
      lowest = std::min(lowest, id);
      highest = std::max(highest, id);
    });
    if (lowest < 0 || highest > INT32_MAX - 1) {
      fail(dataset_.path, fmt::format("row {}: {} holds {}, which is no token id", place,
                                      name, lowest < 0 ? lowest : highest));
    }
    largest_ = std::max(largest_, highest);
  }

  Dataset dataset_;
  int64_t length_;
  int64_t largest_ = 0;
  int64_t padded_ = 0;
};

}  // namespace

std::unique_ptr<TokenSource> saved_dataset_source(const fs::path& path, int64_t seq_len) {
  return std::make_unique<SavedDatasetSource>(path, seq_len);
}

std::string describe_saved_dataset(const fs::path& path) {
  try {
    const Dataset dataset = open_dataset(path);
    const int64_t length = dataset.batches.front().input_ids.row_length(0);
    return fmt::format(
        "Hugging Face save_to_disk directory {}, complete\n"
        "rows            {}, the first of {} tokens\n"
        "files           {} with {}\n"
        "columns used    input_ids{}{}\n"
        "tokenizer       not recorded in this format\n",
        path.string(), grouped(dataset.rows), length, dataset.files,
        human_bytes(static_cast<double>(dataset.bytes)),
        dataset.has_labels ? ", labels" : "", dataset.has_mask ? ", attention_mask" : "");
  } catch (const InputError& error) {
    return fmt::format("Hugging Face save_to_disk directory {}, NOT COMPLETE\n{}\n",
                       path.string(), error.what());
  }
}

}  // namespace longhaul::data
