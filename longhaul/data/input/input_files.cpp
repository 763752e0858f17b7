// From arguments to files: patterns, directories, and what a name says of a file.
#include "longhaul/data/input/input_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"

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

bool has_columns(InputFormat format) {
  return format == InputFormat::Parquet || format == InputFormat::Arrow;
}

/// Of files that hold one document of text each.
constexpr std::array<std::string_view, 8> kTextNames{".txt", ".text", ".md",  ".rst",
                                                     ".tex", ".pod",  ".raw", ".html"};

/// Nothing where the name does not tell.
std::optional<InputFormat> format_of_name(const fs::path& plain) {
  const std::string kind = plain.extension().string();
  if (kind == ".jsonl" || kind == ".json" || kind == ".ndjson")
    return InputFormat::JsonLines;
  if (kind == ".csv" || kind == ".tsv") return InputFormat::Csv;
  if (kind == ".parquet") return InputFormat::Parquet;
  if (kind == ".arrow") return InputFormat::Arrow;
  if (std::ranges::find(kTextNames, kind) != kTextNames.end()) return InputFormat::Text;
  return std::nullopt;
}

/// A guess would read JSON lines, or what is no text at all, as one document of text.
InputFormat known_format(const fs::path& path, const fs::path& plain) {
  if (const auto format = format_of_name(plain)) return *format;
  const std::string kind = plain.extension().string();
  throw InputError(
      "data",
      fmt::format(
          "{}: {} does not tell what is in it; known are {} (one document of text "
          "each), .jsonl .json .ndjson, .csv .tsv, .parquet, .arrow, each but the "
          "last two also with .gz or .zst; name it with --format text, jsonl, "
          "csv, parquet or arrow",
          path.string(), kind.empty() ? "a name without an ending" : "the ending " + kind,
          fmt::join(kTextNames, " ")));
}

/// Files that would else be read as one document of garbage.
void refuse_other_kinds(const fs::path& path) {
  static constexpr std::array<std::string_view, 13> kOther{
      ".bz2", ".xz",  ".lz4", ".lzma", ".zip", ".7z",  ".tar",
      ".tgz", ".rar", ".Z",   ".br",   ".pdf", ".docx"};
  const std::string kind = path.extension().string();
  if (std::find(kOther.begin(), kOther.end(), kind) == kOther.end()) return;
  throw InputError("data", fmt::format("{}: {} files are not read; unpack it, or pack it "
                                       "with gzip or zstd (*.gz, *.zst)",
                                       path.string(), kind));
}

std::vector<std::string> expand(const std::string& argument) {
  if (fs::exists(argument)) return {argument};  // a name may hold [ ] itself
  glob_t found{};
  const int result = ::glob(argument.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> paths;
  if (result == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (paths.empty()) {
    throw InputError(
        "data",
        fmt::format("{}; name files of text, JSON lines, CSV, Parquet or Arrow, for "
                    "example 'corpus/*.jsonl.gz'",
                    argument.find_first_of("*?[") == std::string::npos
                        ? missing_path(argument)
                        : "'" + argument + "' matches no file"));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// "train" of train-00000-of-00005.parquet, where it is the name of a split.
std::string_view split_of(std::string_view name) {
  for (const std::string_view split :
       {"train", "test", "validation", "valid", "val", "dev"}) {
    if (name.starts_with(split) && name.size() > split.size() &&
        (name[split.size()] == '-' || name[split.size()] == '.')) {
      return split;
    }
  }
  return {};
}

/// Arrow or Parquet files of a directory, sorted by name.
std::vector<fs::path> column_files(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::set<std::string> kinds;
  std::set<std::string, std::less<>> splits;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name.starts_with(".")) continue;
    const auto format = format_of_name(entry.path());
    if (!format || !has_columns(*format)) continue;
    paths.push_back(entry.path());
    kinds.insert(entry.path().extension().string());
    if (const auto split = split_of(name); !split.empty()) splits.emplace(split);
  }
  if (kinds.size() > 1 || splits.size() > 1) {
    throw InputError(
        "data", fmt::format("{}: a directory with {}; name those that you mean, for "
                            "example '{}/train-*'",
                            directory.string(),
                            kinds.size() > 1 ? "both *.arrow and *.parquet files"
                                             : "files of several splits (train, test)",
                            directory.string()));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<fs::path> directory_files(const fs::path& directory) {
  if (is_saved_dataset(directory)) return read_saved_files(directory).paths;
  if (fs::exists(directory / "state.json")) {
    throw InputError("data", directory.string() +
                                 ": has state.json, but lacks the dataset_info.json that "
                                 "datasets writes beside it; copy the whole directory "
                                 "again, or name the *.arrow files in it");
  }
  if (fs::exists(directory / "dataset_dict.json")) {
    throw InputError("data",
                     fmt::format("{}: a dataset of several splits; name one, for "
                                 "example '{}'",
                                 directory.string(), (directory / "train").string()));
  }
  std::vector<fs::path> paths = column_files(directory);
  if (paths.empty()) {
    throw InputError("data",
                     fmt::format("{}: is a directory without *.arrow or *.parquet files; "
                                 "name the files in it, for example '{}'",
                                 directory.string(), (directory / "*.jsonl").string()));
  }
  return paths;
}

InputFile look_at(const fs::path& path, const InputOptions& options) {
  refuse_other_kinds(path);
  InputFile file;
  file.path = path;
  const fs::path kind = path.extension();
  if (kind == ".gz") file.compression = Compression::Gzip;
  if (kind == ".zst") file.compression = Compression::Zstd;
  const bool packed = file.compression != Compression::None;
  file.format = options.format
                    ? *options.format
                    : known_format(path, packed ? path.stem() : path.filename());
  if (packed && has_columns(file.format)) {
    throw InputError("data", path.string() +
                                 ": Parquet and Arrow are compressed inside, and not "
                                 "read from *.gz or *.zst; unpack it");
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
    fail(state_file, "no list '_data_files' of the Arrow files; save the dataset again");
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
  throw InputError("data",
                   fmt::format("no format '{}' of inputs; there are {}", name, names));
}

bool is_saved_dataset(const fs::path& directory) {
  return fs::exists(directory / "state.json") &&
         fs::exists(directory / "dataset_info.json");
}

std::vector<InputFile> find_input_files(const InputOptions& options) {
  if (options.arguments.empty()) throw InputError("data", "no input files; name some");
  std::vector<InputFile> files;
  std::set<fs::path> seen;
  for (const std::string& argument : options.arguments) {
    for (const fs::path found : expand(argument)) {
      const std::vector<fs::path> paths =
          fs::is_directory(found) ? directory_files(found) : std::vector<fs::path>{found};
      for (const fs::path& path : paths) {
        if (!seen.insert(fs::weakly_canonical(path)).second) continue;
        files.push_back(look_at(path, options));
        if (files.size() > kMaxFiles) {
          throw InputError("data", fmt::format("more than {} input files; join some",
                                               grouped(kMaxFiles)));
        }
      }
    }
  }
  return files;
}

}  // namespace longhaul::data
