#pragma once

#include <string>
#include <vector>

#include "longhaul/data/input/input_set.h"

namespace longhaul::data {

/// The files that the options name.
struct FoundInputs {
  std::vector<InputFile> files;       ///< each was looked at
  std::vector<fs::path> passed_over;  ///< in directories and patterns, but no corpus
};
/// Finds the files of an InputSet; see there.
FoundInputs find_input_files(const InputOptions& options);

/// Returns "2 files passed over as no corpus: README.md, LICENSE" for at least one path.
std::string describe_passed_over(const std::vector<fs::path>& paths);

/// The files of a save_to_disk directory.
struct SavedFiles {
  std::vector<fs::path> paths;  ///< in the order of the rows; all exist
  std::string identity;  ///< the directory's fingerprint, the names and sizes of files
};
/// Reads state.json. InputError when it is no list of files, when the rows are a
/// selection by index, and when a file is missing.
SavedFiles read_saved_files(const fs::path& directory);

}  // namespace longhaul::data
