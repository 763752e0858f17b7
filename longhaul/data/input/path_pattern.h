#pragma once

#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/data/places/file_tree.h"

namespace longhaul::data {

/// Returns true if the path contains * ? or [ and may stand for other paths.
bool is_pattern(const fs::path& path);

/// Returns true if the last part of a pattern is * or **, which matches any name.
bool means_everything(const fs::path& pattern);

/// Returns the paths that a path names. A path without * ? [ is returned unchanged, even
/// if no such file exists. A pattern gives its matches in the order of the bytes of the
/// names; empty if it matches nothing. A part ** stands for any number of directories,
/// without hidden and linked directories. A ** as the last part, or before a last *,
/// stands for all files beneath. If a file's own name equals the pattern, the pattern
/// names this file. Throws InputError when there is such a file and the pattern matches
/// other files as well. Also throws InputError for ** beside other characters, for a
/// directory that cannot be read, and for a name that is not UTF-8. The address of
/// objects is returned unchanged, with wildcards too, since this function asks no store.
std::vector<fs::path> expand_pattern(const fs::path& pattern);

/// Expands a pattern as expand_pattern(pattern) does, but over the names of a tree, which
/// may be a listing of an object store. The pattern of a listing is an address.
std::vector<fs::path> expand_pattern(const fs::path& pattern, const FileTree& tree);

/// Throws InputError for a path that is not UTF-8, since JSON and TOML files cannot hold
/// such a path.
void check_utf8_path(const fs::path& path);

}  // namespace longhaul::data
