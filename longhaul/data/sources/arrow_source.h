#pragma once

#include <memory>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {

/// True for a directory that Hugging Face datasets wrote with save_to_disk.
bool is_saved_dataset(const fs::path& path);

/// Its rows as sequences, read in place: every row must have seq_len tokens. Targets are
/// the labels (input_ids where there are none) shifted by one, as Hugging Face models
/// shift them; the last position has none, nor have labels of -100 and padding at a row's
/// end. InputError names the file, the row, what was expected and what to do.
std::unique_ptr<TokenSource> saved_dataset_source(const fs::path& path, int64_t seq_len);

/// A few lines on it, for people.
std::string describe_saved_dataset(const fs::path& path);

}  // namespace longhaul::data
