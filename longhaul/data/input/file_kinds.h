#pragma once

#include <optional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/data/input/input_set.h"

namespace longhaul::data {

/// Returns the format that a file's name shows, after .gz and .zst are removed; nothing
/// if the name shows no known format.
std::optional<InputFormat> format_of_name(const fs::path& path);

/// Returns whether a file's name shows a format whose records may hold token ids in place
/// of text: JSON lines, Parquet or Arrow.
bool may_hold_ids(const fs::path& path);

/// Returns the compression that an ending .gz or .zst shows.
Compression compression_of_name(const fs::path& path);

/// Returns true for formats whose records have named fields: all but text.
inline bool has_fields(InputFormat format) { return format != InputFormat::Text; }
inline bool has_columns(InputFormat format) {
  return format == InputFormat::Parquet || format == InputFormat::Arrow;
}

/// Returns true for a file that lies beside a corpus and is no corpus: hidden files,
/// licences and notices, checksums, and descriptions that data sets and Parquet writers
/// leave. A README is such a file unless `format` says that all files are text.
bool is_side_file(const fs::path& path, std::optional<InputFormat> format);

/// Returns true for .md and .rst. In a directory such files are a corpus only if the user
/// names the format.
bool is_documentation(const fs::path& path);

/// Returns the file's ending if it means a compression that the program cannot unpack,
/// such as .bz2; empty for other files.
std::string unread_packing(const fs::path& path);

/// Returns the endings of text files, for messages.
std::string text_endings();

}  // namespace longhaul::data
