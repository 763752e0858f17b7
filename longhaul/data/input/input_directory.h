#pragma once

#include <optional>
#include <vector>

#include "longhaul/data/input/input_set.h"

namespace longhaul::data {

/// What a directory is as an input.
struct DirectoryFiles {
  std::vector<fs::path> paths;        ///< sorted; of save_to_disk in its own order
  std::vector<fs::path> passed_over;  ///< what is no corpus, sorted
};

/// The files of a directory that are its corpus: those that save_to_disk lists, else the
/// files of the one kind that it holds, by their names or, with `format`, all that are
/// not beside it (is_side_file). InputError: several kinds or splits (with the counts and
/// how to choose), directories with data of their own, none at all, a file that is
/// packed in a way that is not read.
DirectoryFiles files_of_directory(const fs::path& directory,
                                  std::optional<InputFormat> format);

/// A file in the directory that counts as data by its name; empty where there is none.
/// The caller has made sure that the directory is no store and no data set of a library.
fs::path data_file_of(const fs::path& directory);

}  // namespace longhaul::data
