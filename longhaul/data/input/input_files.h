#pragma once

#include <string>
#include <vector>

#include "longhaul/data/input/input_set.h"

namespace longhaul::data {

/// What the options name.
struct FoundInputs {
  std::vector<InputFile> files;       ///< each looked at
  std::vector<fs::path> passed_over;  ///< of directories and patterns: no corpus
};
/// See InputSet.
FoundInputs find_input_files(const InputOptions& options);

/// "2 files passed over as no corpus: README.md, LICENSE", of one at least.
std::string describe_passed_over(const std::vector<fs::path>& paths);

/// What a directory of save_to_disk is made of.
struct SavedFiles {
  std::vector<fs::path> paths;  ///< in the order of its rows, each there
  std::string identity;         ///< its fingerprint, the files' names and sizes
};
/// InputError: state.json is no list of files, a selection by index, a file is missing.
SavedFiles read_saved_files(const fs::path& directory);

}  // namespace longhaul::data
