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
#include "longhaul/objects/address.h"
#include "longhaul/system/run_on_threads.h"

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

/// Returns the format that a file's name shows. Throws InputError if the name shows no
/// format, since a guess could read JSON lines, or bytes that are no text, as one
/// document of text.
InputFormat known_format(const fs::path& path) {
  if (const auto format = format_of_name(path)) return *format;
  const bool packed = compression_of_name(path) != Compression::None;
  const std::string kind = (packed ? path.stem() : path).extension().string();
  fail_input(
      "data",
      "{}: {} does not tell the format of the file; give --format text, jsonl, csv, "
      "parquet or arrow. Known are {} (one document of text each), .jsonl .json .ndjson, "
      ".csv .tsv, .parquet, .arrow, each but the last two also with .gz or .zst",
      path.string(), kind.empty() ? "a name without an ending" : "the ending " + kind,
      text_endings());
}

/// Throws InputError for compressed files, .pdf and .docx, which would be read as one
/// document of garbage.
void refuse_other_kinds(const fs::path& path) {
  const std::string kind = path.extension().string();
  if (unread_packing(path).empty() && kind != ".pdf" && kind != ".docx") return;
  fail_input("data",
             "{}: {} files are not read; unpack the file, or pack it with gzip or zstd "
             "(*.gz, *.zst)",
             path.string(), kind);
}

[[noreturn]] void refuse_argument(const std::string& problem,
                                  const std::string& example) {
  fail_input(
      "data",
      "{}; name files of text, JSON lines, CSV, Parquet or Arrow, for example '{}'",
      problem, example);
}

/// Returns the paths that an argument names: one path, or all that a pattern matches.
std::vector<fs::path> named_paths(const std::string& argument) {
  const std::vector<fs::path> paths = expand_pattern(argument);
  const bool pattern = is_pattern(argument);
  if (paths.empty() || (!pattern && !fs::exists(paths.front()))) {
    const std::string other = pattern ? as_address(argument) : std::string();
    refuse_argument(!other.empty() ? objects::without_secrets(argument) + ": " + other
                    : pattern      ? "'" + argument + "' matches no file"
                                   : missing_path(argument),
                    "corpus/*.jsonl.gz");
  }
  return paths;
}

/// Returns the addresses that an address names: its own, or all that a pattern matches.
std::vector<fs::path> named_objects(const objects::Address& address,
                                    const ListedTree& tree) {
  const std::string text = address.text();
  const std::vector<fs::path> paths = expand_pattern(text, tree);
  const bool pattern = is_pattern(text);
  if (paths.empty() || (!pattern && !tree.is_there(paths.front()))) {
    std::string problem = pattern ? "'" + text + "' matches no object"
                                  : text + ": no such object, and none below it";
    if (!tree.unnameable().empty()) {
      problem += fmt::format(" whose key is a path, as that of {} is not",
                             tree.unnameable().front().string());
    }
    refuse_argument(problem, "s3://" + address.bucket + "/corpus/*.jsonl.gz");
  }
  return paths;
}

/// Returns what a file's name and the options tell about it.
InputFile named_file(const fs::path& path, const InputOptions& options) {
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
  return file;
}

InputFile look_at_object(const fs::path& path, const ListedTree& tree,
                         const InputOptions& options) {
  InputFile file = named_file(path, options);
  const objects::ObjectInfo* object = tree.object(path);
  LH_CHECK(object != nullptr, "data", "{}: not in the listing", path.string());
  file.object = std::make_shared<const StoredObject>(tree.store(), *object);
  file.stored_bytes = object->size;
  return file;
}

/// Asks for the versions of objects, which a listing does not have.
void look_at_versions(std::vector<InputFile>& files) {
  const auto look = [&](int64_t i) {
    InputFile& file = files[static_cast<size_t>(i)];
    if (!file.object || !file.object->info.version.empty()) return;
    StoredObject object = *file.object;
    const auto found = object.store->look(object.info.address);
    if (!found) {
      throw InputError("data", file.path.string() +
                                   ": was listed, and is gone; start again when no "
                                   "program writes to the inputs any more");
    }
    object.info = *found;
    file.stored_bytes = found->size;
    file.object = std::make_shared<const StoredObject>(std::move(object));
  };
  system::share_among_threads(std::ssize(files), objects::kRequestsInFlight, look);
}

InputFile look_at(const fs::path& path, const InputOptions& options) {
  InputFile file = named_file(path, options);
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

SavedFiles read_saved_files(const fs::path& directory, const FileTree& tree) {
  const fs::path state_file = directory / "state.json";
  const auto fail = [](const fs::path& file, const std::string& what) {
    fail_input("data", "{}: {}", file.string(), what);
  };
  const Json state = parse_json(tree.read_text(state_file), state_file.string());
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
    if (!tree.exists(path)) {
      fail(path, "missing, but state.json names it; copy the whole directory again");
    }
    files.identity += fmt::format(" {} {}", name, tree.size(path));
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
  fail_input("data", "unknown format '{}' of inputs; known formats are {}", name, names);
}

bool is_saved_dataset(const fs::path& directory, const FileTree& tree) {
  return tree.exists(directory / "state.json") &&
         tree.exists(directory / "dataset_info.json");
}

bool is_saved_dataset(const fs::path& directory) {
  return is_saved_dataset(directory, local_tree());
}

namespace {

/// Collects the files that arguments name.
class InputSearch {
 public:
  explicit InputSearch(const InputOptions& options) : options_(options) {}

  void find_files(const std::string& argument) {
    const auto add = [&](const fs::path& path) {
      if (seen_.insert(fs::weakly_canonical(path)).second) keep(look_at(path, options_));
    };
    for (const fs::path& path : named_paths(argument)) {
      take(argument, path, fs::is_directory(path), local_tree(), add);
    }
  }

  void find_objects(const std::string& argument) {
    const objects::Address address = objects::parse_pattern(argument);
    LH_CHECK(options_.objects, "data", "an address without a store");
    const ListedTree tree(options_.objects, address);
    const auto add = [&](const fs::path& path) {
      if (seen_.insert(path).second) keep(look_at_object(path, tree, options_));
    };
    for (const fs::path& path : named_objects(address, tree)) {
      // If an object and a prefix have the same name, the object is meant.
      const bool directory = tree.object(path) == nullptr;
      take(address.text(), path, directory, tree, add);
    }
    pass_over(tree.unnameable());
  }

  FoundInputs found;

 private:
  template <typename Add>
  void take(const std::string& argument, const fs::path& path, bool directory,
            const FileTree& tree, const Add& add) {
    if (directory) {
      const DirectoryFiles inside = files_of_directory(path, options_.format, tree);
      std::ranges::for_each(inside.paths, add);
      pass_over(inside.passed_over);
    } else if (means_everything(argument) && is_side_file(path, options_.format)) {
      found.passed_over.push_back(path);
    } else {
      add(path);
    }
  }
  void keep(InputFile file) {
    check_utf8_path(file.path);
    found.files.push_back(std::move(file));
    if (found.files.size() <= kMaxFiles) return;
    fail_input("data", "more than {} input files; join some", grouped(kMaxFiles));
  }
  void pass_over(const std::vector<fs::path>& paths) {
    found.passed_over.insert(found.passed_over.end(), paths.begin(), paths.end());
  }

  const InputOptions& options_;
  std::set<fs::path> seen_;
};

}  // namespace

FoundInputs find_input_files(const InputOptions& options) {
  if (options.arguments.empty()) throw InputError("data", "no input files; name some");
  InputSearch search(options);
  for (const std::string& argument : options.arguments) {
    if (objects::is_address(argument)) {
      search.find_objects(argument);
    } else {
      search.find_files(argument);
    }
  }
  const FoundInputs& found = search.found;
  if (found.files.empty()) {
    throw InputError(
        "data", describe_passed_over(found.passed_over) + "; no file is left to read");
  }
  if (options.objects) look_at_versions(search.found.files);
  return std::move(search.found);
}

}  // namespace longhaul::data
