#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "longhaul/data/input/column_rows.h"
#include "longhaul/data/input/input_files.h"
#include "longhaul/data/sources/list_column.h"

namespace longhaul::data {

/// The columns of one record batch that training reads.
struct SavedBatch {
  size_t file = 0;  ///< index into SavedDataset::files
  int64_t first_row = 0;
  int64_t rows = 0;
  ListColumn ids;
  ListColumn labels;
  ListColumn attention_mask;
  /// The flag of the full validation of the columns, which runs once.
  std::unique_ptr<std::once_flag> checked = std::make_unique<std::once_flag>();
};

/// A directory that Hugging Face datasets wrote with save_to_disk. All files are mapped,
/// and the headers of their messages are checked. Every row lies inside the column's
/// values. Immutable; any thread may read.
struct SavedDataset {
  /// The pool of all buffers. It is declared before all members that hold such buffers,
  /// since members are destroyed in the reverse order.
  std::shared_ptr<LimitedPool> pool;
  fs::path path;
  std::string field;  ///< the column of the ids
  std::vector<fs::path> files;
  std::vector<SavedBatch> batches;
  int64_t rows = 0;
  int64_t shortest = 0;  ///< tokens of the shortest row
  int64_t longest = 0;   ///< tokens of the longest row
  uint64_t bytes = 0;
  std::string fingerprint;
  bool has_labels = false;
  bool has_mask = false;
  /// Keeps the mapped files alive.
  std::vector<std::shared_ptr<arrow::RecordBatch>> held;

  /// Returns the batch of a row. Validates the batch in full before its first use, and
  /// throws InputError for a damaged batch.
  const SavedBatch& batch_of(int64_t row) const;
  /// Throws InputError with the row's file and the row's number in that file.
  [[noreturn]] void fail_row(const SavedBatch& batch, int64_t row,
                             const std::string& what) const;
};

/// The columns that are read beside the ids.
inline constexpr const char* kLabelsColumn = "labels";
inline constexpr const char* kMaskColumn = "attention_mask";

/// Opens some files of a directory, whose path is for messages, as if it had no others.
SavedDataset open_saved_files(const fs::path& path, const SavedFiles& files,
                              const std::string& field);
/// Returns the fingerprint of a directory whose files have `rows` rows in all.
std::string saved_fingerprint(const SavedFiles& files, int64_t rows,
                              const std::string& field);

/// Opens a directory whose ids are in the column `field`. An InputError names the file
/// and what is wrong with the file.
SavedDataset open_saved_dataset(const fs::path& path, const std::string& field);

}  // namespace longhaul::data
