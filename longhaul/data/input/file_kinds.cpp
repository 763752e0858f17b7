// Derives the kind of a file's content from its name.
#include "longhaul/data/input/file_kinds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace longhaul::data {
namespace {

/// Endings of files that hold one document of text each.
constexpr std::array<std::string_view, 8> kTextNames{".txt", ".text", ".md",  ".rst",
                                                     ".tex", ".pod",  ".raw", ".html"};

/// Names, without ending and in capitals, of files that often lie beside a corpus and are
/// no part of it.
constexpr std::array<std::string_view, 12> kSideNames{
    "LICENSE",   "LICENCE", "COPYING",  "COPYRIGHT", "NOTICE",    "PATENTS",
    "CHANGELOG", "AUTHORS", "CITATION", "_SUCCESS",  "_METADATA", "_COMMON_METADATA"};

/// Complete names of files that often lie beside a corpus and are no part of it.
constexpr std::array<std::string_view, 6> kSideFiles{
    "state.json",        "dataset_info.json", "dataset_infos.json",
    "dataset_dict.json", "croissant.json",    "SHA256SUMS"};

constexpr std::array<std::string_view, 5> kChecksums{".md5", ".sha1", ".sha256",
                                                     ".sha512", ".crc"};

template <typename List>
bool among(const List& list, std::string_view text) {
  return std::ranges::find(list, text) != std::end(list);
}

/// Returns LICENSE for License.txt and for LICENSE-MIT.
std::string first_word(const fs::path& path) {
  std::string word;
  for (const char c : path.filename().string()) {
    if (c == '.' || c == '-') break;
    word += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return word;
}

fs::path plain_name(const fs::path& path) {
  const fs::path name = path.filename();
  return compression_of_name(path) == Compression::None ? name : name.stem();
}

}  // namespace

Compression compression_of_name(const fs::path& path) {
  if (path.extension() == ".gz") return Compression::Gzip;
  if (path.extension() == ".zst") return Compression::Zstd;
  return Compression::None;
}

std::optional<InputFormat> format_of_name(const fs::path& path) {
  const std::string kind = plain_name(path).extension().string();
  if (kind == ".jsonl" || kind == ".json" || kind == ".ndjson")
    return InputFormat::JsonLines;
  if (kind == ".csv" || kind == ".tsv") return InputFormat::Csv;
  if (kind == ".parquet") return InputFormat::Parquet;
  if (kind == ".arrow") return InputFormat::Arrow;
  if (among(kTextNames, kind)) return InputFormat::Text;
  return std::nullopt;
}

bool may_hold_ids(const fs::path& path) {
  const auto format = format_of_name(path);
  return format && *format != InputFormat::Text && *format != InputFormat::Csv;
}

bool is_documentation(const fs::path& path) {
  const std::string kind = plain_name(path).extension().string();
  return kind == ".md" || kind == ".rst";
}

bool is_side_file(const fs::path& path, std::optional<InputFormat> format) {
  const std::string name = path.filename().string();
  if (name.starts_with('.') || among(kSideFiles, name)) return true;
  if (among(kChecksums, path.extension().string())) return true;
  // A file of records whose name looks like a licence is a corpus file.
  if (format_of_name(path).value_or(InputFormat::Text) != InputFormat::Text) return false;
  const std::string word = first_word(path);
  return among(kSideNames, word) || (word == "README" && format != InputFormat::Text);
}

std::string unread_packing(const fs::path& path) {
  static constexpr std::array<std::string_view, 11> kPackings{
      ".bz2", ".xz", ".lz4", ".lzma", ".zip", ".7z", ".tar", ".tgz", ".rar", ".Z", ".br"};
  const std::string kind = path.extension().string();
  return among(kPackings, kind) ? kind : std::string();
}

std::string text_endings() { return fmt::format("{}", fmt::join(kTextNames, " ")); }

}  // namespace longhaul::data
