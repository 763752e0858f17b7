// Finds the corpus files of a directory.
#include "longhaul/data/input/input_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/file_kinds.h"
#include "longhaul/data/input/input_files.h"
#include "longhaul/objects/address.h"

namespace longhaul::data {
namespace {

using Paths = std::vector<fs::path>;

[[noreturn]] void refuse(const fs::path& directory, const std::string& what) {
  fail_input("data", "{}: {}", directory.string(), what);
}

/// Returns the format of a file in a directory; nothing for a file that is no corpus.
std::optional<InputFormat> kind_in_directory(const fs::path& path,
                                             std::optional<InputFormat> format) {
  if (is_side_file(path, format)) return std::nullopt;
  if (format) return format;
  return is_documentation(path) ? std::nullopt : format_of_name(path);
}

/// Returns the split in a file's name, such as "train" for train-00000-of-00005.parquet;
/// empty if the name has no split.
std::string_view split_of(std::string_view name) {
  for (const std::string_view split :
       {"train", "test", "validation", "valid", "val", "dev", "eval"}) {
    if (name.starts_with(split) && name.size() > split.size() &&
        std::string_view("-_.").find(name[split.size()]) != std::string_view::npos) {
      return split;
    }
  }
  return {};
}

/// Returns a pattern for files of a kind, such as '*.json.gz' for shard-1.json.gz.
std::string pattern_of(const fs::path& path) {
  const fs::path plain =
      compression_of_name(path) == Compression::None ? path.filename() : path.stem();
  const std::string ending =
      path.filename().string().substr(plain.stem().string().size());
  return "*" + ending;
}

/// Returns true for a token store and for an unfinished token store. Both may lie beside
/// their inputs.
bool is_store(const fs::path& directory, const FileTree& tree) {
  return tree.exists(directory / "store.json") || directory.extension() == ".building";
}

/// Returns a file in the directory or below that counts as data; empty if there is none.
fs::path data_beneath(const fs::path& directory, std::optional<InputFormat> format,
                      const FileTree& tree) {
  for (const FileTree::Entry& entry : tree.entries(directory)) {
    if (entry.name().starts_with('.')) continue;
    if (entry.is_directory) {
      if (entry.is_link || is_store(entry.path, tree)) continue;
      fs::path found = data_beneath(entry.path, format, tree);
      if (!found.empty()) return found;
    } else if (kind_in_directory(entry.path, format)) {
      return entry.path;
    }
  }
  return {};
}

/// Returns what stands behind the bucket in an address.
std::string key_of(const fs::path& address) {
  constexpr size_t kScheme = std::string_view("s3://").size();
  const std::string text = address.string();
  const size_t slash = text.find('/', kScheme);
  return slash == std::string::npos ? std::string() : text.substr(slash + 1);
}

class DirectoryLook {
 public:
  DirectoryLook(const fs::path& directory, std::optional<InputFormat> format,
                const FileTree& tree)
      : directory_(directory), format_(format), tree_(tree) {
    for (const FileTree::Entry& entry : tree.entries(directory)) add(entry);
  }

  DirectoryFiles files() {
    if (kinds_.size() > 1) refuse_kinds();
    if (splits_.size() > 1) refuse_splits();
    if (!beneath_.empty()) refuse_beneath();
    if (kinds_.empty()) refuse_empty();
    DirectoryFiles found{kinds_.begin()->second, passed_over_};
    std::ranges::sort(found.paths);
    std::ranges::sort(found.passed_over);
    return found;
  }

 private:
  void add(const FileTree::Entry& entry) {
    const fs::path& path = entry.path;
    const std::string name = entry.name();
    if (entry.is_directory) {
      const bool own = !name.starts_with('.') && !entry.is_link && !is_store(path, tree_);
      if (own && beneath_.empty()) beneath_ = data_beneath(path, format_, tree_);
      passed_over_.push_back(path);
      return;
    }
    if (const std::string packing = unread_packing(path);
        !packing.empty() && !name.starts_with('.')) {
      refuse(directory_, fmt::format("holds {}, and {} files are not read; unpack the "
                                     "file, or pack it with gzip or zstd (*.gz, *.zst)",
                                     name, packing));
    }
    const auto kind = kind_in_directory(path, format_);
    if (!kind) {
      passed_over_.push_back(path);
      return;
    }
    kinds_[*kind].push_back(path);
    // A text file such as test_a.py names no split.
    if (*kind == InputFormat::Text && format_) return;
    if (const auto split = split_of(name); !split.empty()) splits_.emplace(split);
  }

  /// Returns a pattern such as "'dir/*.jsonl'", made from the first path.
  std::string for_example(const Paths& paths) const {
    return fmt::format("'{}'", (directory_ / pattern_of(paths.front())).string());
  }

  [[noreturn]] void refuse_kinds() const {
    std::string counts;
    std::string choices;
    for (const auto& [kind, paths] : kinds_) {
      counts += fmt::format("{}{} of {} (such as {})", counts.empty() ? "" : ", ",
                            counted(std::ssize(paths), "file"), format_name(kind),
                            paths.front().filename().string());
      choices += (choices.empty() ? "" : " or ") + for_example(paths);
    }
    refuse(directory_, fmt::format("the directory holds data of several kinds: {}; name "
                                   "the files that you mean: {}",
                                   counts, choices));
  }

  [[noreturn]] void refuse_splits() const {
    refuse(directory_,
           fmt::format("the directory holds files of several splits ({}, {}); name the "
                       "files that you mean, for example '{}/{}*'",
                       *splits_.begin(), *std::next(splits_.begin()), directory_.string(),
                       *splits_.rbegin()));
  }

  [[noreturn]] void refuse_beneath() const {
    // All files of a named format count, whatever their names.
    const std::string pattern = format_ ? "*" : pattern_of(beneath_);
    const std::string all = (directory_ / "**" / pattern).string();
    if (kinds_.empty()) {
      refuse(directory_, fmt::format("holds no data itself, but directories with data, "
                                     "such as {}; write '{}' for all the files in them",
                                     beneath_.string(), all));
    }
    refuse(directory_,
           fmt::format("holds data and also directories with data, such as {}; write "
                       "'{}' for all the files, or {} for the files directly in it",
                       beneath_.string(), all, for_example(kinds_.begin()->second)));
  }

  [[noreturn]] void refuse_empty() const {
    const std::string others = passed_over_.empty()
                                   ? "is empty"
                                   : "holds no file whose name says that it is data; " +
                                         describe_passed_over(passed_over_) +
                                         "; give the format of such files with --format, "
                                         "for example --format text";
    refuse(directory_,
           fmt::format("{}; name files of text, JSON lines, CSV, Parquet or Arrow, or a "
                       "directory with files of one of these kinds",
                       others));
  }

  fs::path directory_;
  std::optional<InputFormat> format_;
  const FileTree& tree_;
  std::map<InputFormat, Paths> kinds_;
  std::set<std::string, std::less<>> splits_;
  Paths passed_over_;
  fs::path beneath_;
};

}  // namespace

DirectoryFiles files_of_directory(const fs::path& directory,
                                  std::optional<InputFormat> format,
                                  const FileTree& tree) {
  if (is_saved_dataset(directory, tree)) {
    if (format && *format != InputFormat::Arrow) {
      refuse(directory, fmt::format("a save_to_disk directory holds Arrow files, but "
                                    "--format is {}; leave --format out",
                                    format_name(*format)));
    }
    return {read_saved_files(directory, tree).paths, {}};
  }
  if (tree.exists(directory / "state.json")) {
    refuse(directory,
           "has state.json, but lacks the dataset_info.json that datasets writes beside "
           "it; copy the whole directory again, or name the *.arrow files in it");
  }
  if (tree.exists(directory / "dataset_dict.json")) {
    refuse(directory, fmt::format("a dataset of several splits; name one, for example "
                                  "'{}'",
                                  (directory / "train").string()));
  }
  return DirectoryLook(directory, format, tree).files();
}

fs::path data_file_of(const fs::path& directory) {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (!entry.is_directory() && kind_in_directory(entry.path(), {})) return entry.path();
  }
  return {};
}

std::string describe_passed_over(const std::vector<fs::path>& paths) {
  constexpr size_t kNamed = 8;
  std::vector<std::string> names;
  for (const fs::path& path : paths) {
    // An object whose key is no path has no name of its own.
    const bool plain = !objects::is_address(path) || objects::is_path(key_of(path));
    names.push_back(plain ? path.filename().string() : path.string());
  }
  return fmt::format(
      "{} passed over as no corpus: {}",
      counted(std::ssize(paths), "file or directory", "files or directories"),
      listed(names, kNamed));
}

}  // namespace longhaul::data
