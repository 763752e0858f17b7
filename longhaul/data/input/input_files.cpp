// Finds the files that arguments name.
#include "longhaul/data/input/input_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/file_kinds.h"
#include "longhaul/data/input/input_directory.h"
#include "longhaul/data/input/path_pattern.h"

namespace longhaul::data {
namespace {

constexpr size_t kMaxFiles = 10'000'000;

constexpr std::array<std::pair<std::string_view, InputFormat>, 5> kFormatNames{{
    {"text", InputFormat::Text},
    {"jsonl", InputFormat::JsonLines},
    {"csv", InputFormat::Csv},
    {"parquet", InputFormat::Parquet},
    {"arrow", InputFormat::Arrow},
}};

/// Returns the format that a file's name shows. Throws InputError where the name shows no
/// format, since a guess could read JSON lines, or bytes that are no text, as one
/// document of text.
InputFormat known_format(const fs::path& path) {
  if (const auto format = format_of_name(path)) return *format;
  const bool packed = compression_of_name(path) != Compression::None;
  const std::string kind = (packed ? path.stem() : path).extension().string();
  throw InputError(
      "data",
      fmt::format("{}: {} does not tell the format of the file; give --format text, "
                  "jsonl, csv, parquet or arrow. Known are {} (one document of text "
                  "each), .jsonl .json .ndjson, .csv .tsv, .parquet, .arrow, each but "
                  "the last two also with .gz or .zst",
                  path.string(),
                  kind.empty() ? "a name without an ending" : "the ending " + kind,
                  text_endings()));
}

/// Throws InputError for compressed files, .pdf and .docx, which would be read as one
/// document of garbage.
void refuse_other_kinds(const fs::path& path) {
  const std::string kind = path.extension().string();
  if (unread_packing(path).empty() && kind != ".pdf" && kind != ".docx") return;
  throw InputError("data", fmt::format("{}: {} files are not read; unpack the file, or "
                                       "pack it with gzip or zstd (*.gz, *.zst)",
                                       path.string(), kind));
}

/// Returns the paths that an argument names: one path, or all that a pattern matches.
std::vector<fs::path> named_paths(const std::string& argument) {
  const std::vector<fs::path> paths = expand_pattern(argument);
  const bool pattern = is_pattern(argument);
  if (paths.empty() || (!pattern && !fs::exists(paths.front()))) {
    throw InputError(
        "data", fmt::format("{}; name files of text, JSON lines, CSV, Parquet or Arrow, "
                            "for example 'corpus/*.jsonl.gz'",
                            pattern ? "'" + argument + "' matches no file"
                                    : missing_path(argument)));
  }
  return paths;
}

InputFile look_at(const fs::path& path, const InputOptions& options) {
  refuse_other_kinds(path);
  InputFile file;
  file.path = path;
  file.compression = compression_of_name(path);
  const bool packed = file.compression != Compression::None;
  file.format = options.format ? *options.format : known_format(path);
  if (packed && has_columns(file.format)) {
    throw InputError("data", path.string() +
                                 ": Parquet and Arrow files are compressed inside, and "
                                 "are not read from *.gz or *.zst; unpack the file");
  }
  const File open = File::open_read(path);
  struct stat status{};
  if (::fstat(open.fd(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw InputError("data", path.string() + ": is not a regular file");
  }
  file.stored_bytes = static_cast<uint64_t>(status.st_size);
  file.modified_ns =
      int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  return file;
}

}  // namespace

SavedFiles read_saved_files(const fs::path& directory) {
  const fs::path state_file = directory / "state.json";
  const auto fail = [](const fs::path& file, const std::string& what) {
    throw InputError("data", fmt::format("{}: {}", file.string(), what));
  };
  const Json state = read_json(state_file);
  if (!state.is_object()) fail(state_file, "an object was expected");
  const Json list = state.value("_data_files", Json::array());
  if (!list.is_array() || list.empty() || list.size() > kMaxFiles) {
    fail(state_file,
         "has no list '_data_files' of the Arrow files; save the dataset again");
  }
  if (const auto indices = state.find("_indices_data_files");
      indices != state.end() && indices->is_array() && !indices->empty()) {
    fail(state_file,
         "its rows are a selection by index; save it again after "
         "dataset.flatten_indices()");
  }
  SavedFiles files;
  files.identity = json_text(state.value("_fingerprint", Json()));
  for (const Json& entry : list) {
    if (!entry.is_object() || !entry.contains("filename") ||
        !entry["filename"].is_string()) {
      fail(state_file, "an entry of '_data_files' has no file name");
    }
    const auto name = entry["filename"].get<std::string>();
    const fs::path& path = files.paths.emplace_back(join_inside(directory, name, "data"));
    if (!fs::exists(path)) {
      fail(path, "missing, but state.json names it; copy the whole directory again");
    }
    files.identity += fmt::format(" {} {}", name, fs::file_size(path));
  }
  return files;
}

std::string_view format_name(InputFormat format) {
  for (const auto& [name, known] : kFormatNames) {
    if (known == format) return name;
  }
  return "unknown";
}

InputFormat parse_format(std::string_view name) {
  std::string names;
  for (const auto& [known, format] : kFormatNames) {
    if (known == name) return format;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known);
  }
  throw InputError(
      "data",
      fmt::format("unknown format '{}' of inputs; known formats are {}", name, names));
}

bool is_saved_dataset(const fs::path& directory) {
  return fs::exists(directory / "state.json") &&
         fs::exists(directory / "dataset_info.json");
}

FoundInputs find_input_files(const InputOptions& options) {
  if (options.arguments.empty()) throw InputError("data", "no input files; name some");
  FoundInputs found;
  std::set<fs::path> seen;
  const auto add = [&](const fs::path& path) {
    if (!seen.insert(fs::weakly_canonical(path)).second) return;
    check_utf8_path(path);
    found.files.push_back(look_at(path, options));
    if (found.files.size() <= kMaxFiles) return;
    throw InputError(
        "data", fmt::format("more than {} input files; join some", grouped(kMaxFiles)));
  };
  for (const std::string& argument : options.arguments) {
    for (const fs::path& path : named_paths(argument)) {
      if (fs::is_directory(path)) {
        const DirectoryFiles inside = files_of_directory(path, options.format);
        std::ranges::for_each(inside.paths, add);
        found.passed_over.insert(found.passed_over.end(), inside.passed_over.begin(),
                                 inside.passed_over.end());
      } else if (means_everything(argument) && is_side_file(path, options.format)) {
        found.passed_over.push_back(path);
      } else {
        add(path);
      }
    }
  }
  if (found.files.empty()) {
    throw InputError(
        "data", describe_passed_over(found.passed_over) + "; no file is left to read");
  }
  return found;
}

}  // namespace longhaul::data
