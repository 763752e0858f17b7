#pragma once

#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::data {

/// True where the path holds * ? or [, so that it may stand for other paths.
bool is_pattern(const fs::path& path);

/// True where a pattern's last part names nothing by itself: * or **.
bool means_everything(const fs::path& pattern);

/// What a path names. One without * ? [ is taken as it is, there or not. A pattern gives
/// what it matches, in the order of the bytes of the names; a part ** stands for any
/// number of directories (as the last part, and before a last *, for all files beneath),
/// without hidden and linked ones. A file that has the pattern for its name is meant by
/// it. Empty: the pattern matches nothing. InputError: a file has the pattern for its
/// name and the pattern matches others as well, ** beside other characters, a directory
/// that cannot be read, a name that is not UTF-8.
std::vector<fs::path> expand_pattern(const fs::path& pattern);

/// InputError for a path that is not UTF-8: JSON and TOML, in which paths are kept,
/// cannot hold it.
void check_utf8_path(const fs::path& path);

}  // namespace longhaul::data
