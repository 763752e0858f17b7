#pragma once

#include <optional>
#include <vector>

#include "longhaul/data/input/input_set.h"

namespace longhaul::data {

/// The files of a directory that is an input.
struct DirectoryFiles {
  std::vector<fs::path> paths;  ///< sorted; for save_to_disk in the order of its rows
  std::vector<fs::path>
      passed_over;  ///< files and directories that are no corpus, sorted
};

/// Returns the files of a directory that are its corpus: the files that save_to_disk
/// lists, else the files of the one kind that the directory holds. The names tell the
/// kind; with `format` all files count but side files (is_side_file). InputError for
/// several kinds or splits (with the counts and how to choose), for directories inside
/// with data of their own, for no data at all, and for a file that is packed in a way
/// that is not read.
DirectoryFiles files_of_directory(const fs::path& directory,
                                  std::optional<InputFormat> format);

/// Returns a file in the directory that counts as data by its name; empty where there is
/// none. The caller has made sure that the directory is no store and no data set of a
/// library.
fs::path data_file_of(const fs::path& directory);

}  // namespace longhaul::data
