#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::format {

// The side files of a model: files that are copied along with its weights. Weights,
// optimizer states and code are none. Names are relative to the directory, with '/' for a
// file in a folder.

/// Returns the names in a directory, sorted, each with the prefix before it. Throws
/// InputError if the directory cannot be listed.
std::vector<std::string> listed_names(const fs::path& dir,
                                      const std::string& prefix = {});

/// Returns the config, tokenizer, chat template, processor, licence and readme files that
/// a directory has, in the order of their names.
std::vector<std::string> hf_side_files(const fs::path& dir);

/// Returns whether a side file belongs to a tokenizer, as chat templates do. Files of two
/// tokenizers must not be mixed.
bool is_tokenizer_side_file(std::string_view name);

/// Returns whether one of these side files has a tokenizer's vocabulary.
bool has_tokenizer(const std::vector<std::string>& names);

/// Returns what is wrong with the side files of a directory, one line each: dangling
/// links, what is no file, what cannot be read, and JSON files that hold no JSON.
std::vector<std::string> side_file_problems(const fs::path& dir);

/// Throws InputError that lists side_file_problems, if there are any.
void check_side_files(const fs::path& dir);

/// Returns the names of all entries of a directory except the files `used` and the side
/// files; names of folders end with '/'.
std::vector<std::string> files_left_behind(const fs::path& dir,
                                           const std::vector<std::string>& used);

}  // namespace longhaul::format
