#pragma once

#include <memory>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {

/// Opens a save_to_disk directory whose rows are read in place as sequences. Every row
/// must have seq_len tokens in the column `field`. Targets are the labels (the ids where
/// there are no labels) shifted by one, as Hugging Face models shift them. The last
/// position, labels of -100 and padding at a row's end have no target. The function reads
/// the framing of the files and the lengths of the rows, not the values. Each record
/// batch is validated in full before its first row is used, and each row's ids when the
/// row is read. An InputError names the file, the row, what was expected and what to do.
std::unique_ptr<TokenSource> saved_dataset_source(const fs::path& path, int64_t seq_len,
                                                  const std::string& field = kIdsField);

/// Opens the rows of one Arrow file of such a directory in the same way.
std::unique_ptr<TokenSource> saved_file_source(const fs::path& file, int64_t seq_len,
                                               const std::string& field = kIdsField);

/// The number of rows in a save_to_disk directory, and the numbers of tokens in the
/// shortest and the longest row.
struct SavedRows {
  int64_t rows = 0;
  int64_t shortest = 0;
  int64_t longest = 0;
  /// Returns true when rows differ in length, so that the rows must be packed to become
  /// sequences.
  bool uneven() const { return shortest != longest; }
};
/// Counts rows and tokens, which costs no more than opening the directory.
SavedRows saved_rows(const fs::path& path, const std::string& field = kIdsField);

/// Describes a save_to_disk directory in a few lines, for people. Throws InputError where
/// the directory is not complete.
std::string describe_saved_dataset(const fs::path& path,
                                   const std::string& field = kIdsField);

}  // namespace longhaul::data
