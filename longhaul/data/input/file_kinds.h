#pragma once

#include <optional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/data/input/input_set.h"

namespace longhaul::data {

/// Returns the format that the name of a file tells, without .gz and .zst; nothing where
/// the name tells none.
std::optional<InputFormat> format_of_name(const fs::path& path);

/// Returns the compression that the endings .gz and .zst tell.
Compression compression_of_name(const fs::path& path);

/// True for formats whose records have named fields: all but text.
inline bool has_fields(InputFormat format) { return format != InputFormat::Text; }
inline bool has_columns(InputFormat format) {
  return format == InputFormat::Parquet || format == InputFormat::Arrow;
}

/// True for a file that lies beside a corpus and is no corpus: hidden files, licences and
/// notices, checksums, and what data sets and Parquet writers note of themselves. A
/// README is such a file unless `format` says that all files are text.
bool is_side_file(const fs::path& path, std::optional<InputFormat> format);

/// True for .md and .rst. In a directory these are a corpus only where the format is
/// named.
bool is_documentation(const fs::path& path);

/// Returns an ending that the program does not unpack, such as .bz2; empty for others.
std::string unread_packing(const fs::path& path);

/// Returns the endings of text files, for messages.
std::string text_endings();

}  // namespace longhaul::data
