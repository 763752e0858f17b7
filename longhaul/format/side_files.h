#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::format {

// The list of files that go with a model's weights wherever the weights go. Weights,
// optimizer states and code are not on the list. Names are relative to the directory,
// with '/' for a file in a folder.

/// Returns the names in a directory, sorted, with the prefix before each. Throws
/// InputError where they cannot be listed.
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

/// Returns the names of everything else in a directory; folders end with '/'. `used` are
/// known files, and side files count as known.
std::vector<std::string> files_left_behind(const fs::path& dir,
                                           const std::vector<std::string>& used);

}  // namespace longhaul::format
