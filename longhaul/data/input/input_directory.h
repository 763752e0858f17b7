#pragma once

#include <optional>
#include <vector>

#include "longhaul/data/input/input_set.h"
#include "longhaul/data/places/file_tree.h"

namespace longhaul::data {

/// The files of a directory that is an input.
struct DirectoryFiles {
  /// Sorted; for a save_to_disk directory in the order of its rows.
  std::vector<fs::path> paths;
  std::vector<fs::path>
      passed_over;  ///< files and directories that are no corpus, sorted
};

/// Returns the corpus files of a directory: the files that save_to_disk lists, else the
/// files of the one kind that the directory holds. The files' names show their kind. With
/// `format` all files count but side files (is_side_file). Throws InputError for several
/// kinds or splits; the message has the counts and says how to choose. Also throws
/// InputError for subdirectories with data, for no data at all, and for a file with a
/// compression that the program cannot unpack.
DirectoryFiles files_of_directory(const fs::path& directory,
                                  std::optional<InputFormat> format,
                                  const FileTree& tree = local_tree());

/// Returns a file in the directory that counts as data by its name; empty if there is no
/// such file. The caller must have made sure that the directory is no store and no data
/// set of a library.
fs::path data_file_of(const fs::path& directory);

}  // namespace longhaul::data
