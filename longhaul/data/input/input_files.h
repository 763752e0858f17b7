#pragma once

#include <string>
#include <vector>

#include "longhaul/data/input/input_set.h"
#include "longhaul/data/places/file_tree.h"

namespace longhaul::data {

/// The files that the options name.
struct FoundInputs {
  std::vector<InputFile> files;  ///< each file was opened and examined
  /// Found in directories and by patterns, but not part of a corpus.
  std::vector<fs::path> passed_over;
};
/// Finds the files that options.arguments name. The constructor of InputSet says which
/// errors are thrown.
FoundInputs find_input_files(const InputOptions& options);

/// Returns a text such as "2 files passed over as no corpus: README.md, LICENSE". `paths`
/// must not be empty.
std::string describe_passed_over(const std::vector<fs::path>& paths);

/// The files of a directory that Hugging Face datasets wrote with save_to_disk.
struct SavedFiles {
  std::vector<fs::path> paths;  ///< in the order of the rows; all files exist
  std::string identity;  ///< the directory's fingerprint, the names and sizes of files
};
/// Reads state.json. Throws InputError when state.json has no list of files, when the
/// rows are a selection by index, and when a file is missing.
SavedFiles read_saved_files(const fs::path& directory,
                            const FileTree& tree = local_tree());

/// Returns true for a directory of `tree` that save_to_disk wrote and that datasets can
/// open again.
bool is_saved_dataset(const fs::path& directory, const FileTree& tree);

}  // namespace longhaul::data
