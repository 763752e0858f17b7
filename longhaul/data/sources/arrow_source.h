#pragma once

#include <memory>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {

/// Its rows as sequences, read in place: every row must have seq_len tokens, which stand
/// in the column `field`. Targets are the labels (the ids where there are none) shifted
/// by one, as Hugging Face models shift them; the last position has none, nor have labels
/// of -100 and padding at a row's end. Opening reads the files' framing and the rows'
/// lengths, not their values: each record batch is validated in full before its first row
/// is used, and each row's ids as it is read. InputError names the file, the row, what
/// was expected and what to do.
std::unique_ptr<TokenSource> saved_dataset_source(const fs::path& path, int64_t seq_len,
                                                  const std::string& field = kIdsField);

/// How many rows a save_to_disk directory has, and how many tokens its shortest and its
/// longest row have.
struct SavedRows {
  int64_t rows = 0;
  int64_t shortest = 0;
  int64_t longest = 0;
};
/// Counts the rows and their tokens, which costs no more than opening the directory.
SavedRows saved_rows(const fs::path& path, const std::string& field = kIdsField);

/// True when its rows differ in length, so that only packing makes sequences of them. As
/// cheap as opening it.
bool has_uneven_rows(const fs::path& path, const std::string& field = kIdsField);

/// A few lines on it, for people.
std::string describe_saved_dataset(const fs::path& path,
                                   const std::string& field = kIdsField);

}  // namespace longhaul::data
