#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul {

// The files of a model's directory that go with its weights wherever they go: the one
// list of them. Weights, optimizer states and code do not belong to it. Names are
// relative to the directory, with '/' where a file lies in a folder of it.

/// Config, tokenizer, chat template, processor, licence and readme files of a directory;
/// only those that exist, in the order of their names.
std::vector<std::string> hf_side_files(const fs::path& dir);

/// Whether a side file belongs to a tokenizer: the files of two tokenizers must not be
/// mixed. Chat templates do.
bool is_tokenizer_side_file(std::string_view name);

/// Whether one of these side files has a tokenizer's vocabulary.
bool has_tokenizer(const std::vector<std::string>& names);

/// What is wrong with the side files of a directory, one line each: links to nothing,
/// what is no file, what cannot be read, and JSON files that hold no JSON.
std::vector<std::string> side_file_problems(const fs::path& dir);

/// InputError that lists side_file_problems, where there are any.
void check_side_files(const fs::path& dir);

/// What else lies in a directory, by name; folders end with '/'. `used` are the files
/// that are known, side files count as known.
std::vector<std::string> files_left_behind(const fs::path& dir,
                                           const std::vector<std::string>& used);

}  // namespace longhaul
