#pragma once

#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::data {

/// True where the path holds * ? or [ and may stand for other paths.
bool is_pattern(const fs::path& path);

/// True where the last part of a pattern is * or **, which matches any name.
bool means_everything(const fs::path& pattern);

/// Returns the paths that a path names. A path without * ? [ is returned as it is,
/// whether it exists or not. A pattern gives its matches in the order of the bytes of the
/// names; empty where it matches nothing. A part ** stands for any number of directories,
/// without hidden and linked directories; as the last part, and before a last *, it
/// stands for all files beneath. A file whose own name is the pattern is meant by the
/// pattern. InputError when there is such a file and the pattern matches others as well,
/// for ** beside other characters, for a directory that cannot be read, and for a name
/// that is not UTF-8.
std::vector<fs::path> expand_pattern(const fs::path& pattern);

/// Throws InputError for a path that is not UTF-8: the JSON and TOML files that keep
/// paths cannot hold it.
void check_utf8_path(const fs::path& path);

}  // namespace longhaul::data
