#pragma once

#include <optional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/data/input/input_set.h"

namespace longhaul::data {

/// What the name of a file says of its content, after .gz and .zst; nothing where it does
/// not tell.
std::optional<InputFormat> format_of_name(const fs::path& path);

/// Gzip and Zstd by the endings .gz and .zst.
Compression compression_of_name(const fs::path& path);

/// True where records have fields that a name chooses: all but text.
inline bool has_fields(InputFormat format) { return format != InputFormat::Text; }
inline bool has_columns(InputFormat format) {
  return format == InputFormat::Parquet || format == InputFormat::Arrow;
}

/// What stands beside a corpus and is none: hidden files, licences and notices, what
/// data sets and Parquet writers keep of themselves, checksums. A README counts as such a
/// file unless `format` says that all files are text.
bool is_side_file(const fs::path& path, std::optional<InputFormat> format);

/// .md and .rst: in a directory it is a corpus only where the format is named.
bool is_documentation(const fs::path& path);

/// An ending that the program does not unpack, such as .bz2; empty for others.
std::string unread_packing(const fs::path& path);

/// The names of the endings of text files, for messages.
std::string text_endings();

}  // namespace longhaul::data
