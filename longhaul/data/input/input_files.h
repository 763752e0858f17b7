#pragma once

#include <string>
#include <vector>

#include "longhaul/data/input/input_set.h"

namespace longhaul::data {

/// The files that the options name, each looked at; see InputSet.
std::vector<InputFile> find_input_files(const InputOptions& options);

/// What a directory of save_to_disk is made of.
struct SavedFiles {
  std::vector<fs::path> paths;  ///< in the order of its rows, each there
  std::string identity;         ///< its fingerprint, the files' names and sizes
};
/// InputError: state.json is no list of files, a selection by index, a file is missing.
SavedFiles read_saved_files(const fs::path& directory);

}  // namespace longhaul::data
