#include "longhaul/data/input/path_pattern.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/objects/address.h"

namespace longhaul::data {
namespace {

constexpr std::string_view kDescend = "**";

/// Returns true for a ** that is not a whole part of the path, since such a ** would mean
/// no more than *.
bool misuses_descend(std::string_view part) {
  const size_t at = part.find(kDescend);
  return at != std::string_view::npos && part != kDescend &&
         (at == 0 || part[at - 1] != '\\');
}

/// Replaces each byte that is not UTF-8 by readable text, since messages are kept in
/// JSON.
std::string readable(std::string text) {
  while (const auto at = find_invalid_utf8(text)) {
    text.replace(*at, 1, fmt::format("\\x{:02x}", static_cast<unsigned char>(text[*at])));
  }
  return text;
}

/// Returns all entries. Throws InputError for a directory that cannot be read.
std::vector<FileTree::Entry> entries_of(const FileTree& tree, const fs::path& directory) {
  try {
    return tree.entries(directory);
  } catch (const fs::filesystem_error& problem) {
    fail_input("data",
               "{}: cannot be read ({}), so a pattern cannot be matched in it; make the "
               "directory readable, or name the files themselves",
               directory.string(), problem.code().message());
  }
}

class PatternWalk {
 public:
  PatternWalk(const fs::path& pattern, const FileTree& tree)
      : pattern_(pattern), tree_(tree), parts_(pattern.begin(), pattern.end()) {
    if (objects::is_address(pattern)) {
      // The walk begins in the bucket. The two slashes of "s3://" are no parts of the
      // path.
      const objects::Address address = objects::parse_pattern(pattern);
      const fs::path key = address.key;
      parts_.assign(key.begin(), key.end());
      start_ = "s3://" + address.bucket;
    }
    files_only_ = means_everything(pattern) &&
                  std::ranges::find(parts_, fs::path(kDescend)) != parts_.end();
  }

  std::vector<fs::path> matches() {
    walk(start_, 0, false);
    sort(named_);
    sort(matched_);
    if (!named_.empty() && !matched_.empty()) fail_both();
    return named_.empty() ? matched_ : named_;
  }

 private:
  /// Collects the matches below `at` from part `next` of the pattern on. `named` says
  /// that a file's own name equals an earlier part with * ? or [.
  void walk(const fs::path& at, size_t next, bool named) {
    if (next == parts_.size()) {
      (named ? named_ : matched_).push_back(at);
      return;
    }
    const std::string part = parts_[next].string();
    if (!has_wildcard(part)) {
      const fs::path inside = at / part;
      if (tree_.is_there(inside)) walk(inside, next + 1, named);
      return;
    }
    if (tree_.is_there(at / part)) walk(at / part, next + 1, true);
    if (!at.empty() && !tree_.is_directory(at)) return;
    if (part == kDescend) {
      descend(at, next, named);
    } else if (!misuses_descend(part)) {
      match(at, next, named);
    } else if (!tree_.is_there(at / part)) {
      fail_input(
          "data",
          "'{}': ** stands for directories only where it is a whole part of the path, "
          "but '{}' holds more than **; write for example 'corpus/**/*.jsonl'",
          pattern_.string(), part);
    }
  }

  void match(const fs::path& at, size_t next, bool named) {
    const std::string part = parts_[next].string();
    for (const FileTree::Entry& entry : entries_of(tree_, at)) {
      const std::string name = entry.name();
      if (name == part || ::fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) != 0) {
        continue;
      }
      const bool directory = entry.is_directory;
      const bool last = next + 1 == parts_.size();
      // **/* means the files in all directories, since ** itself goes into the
      // directories.
      if (last ? !directory || !files_only_ : directory) walk(at / name, next + 1, named);
    }
  }

  void descend(const fs::path& at, size_t next, bool named) {
    const bool last = next + 1 == parts_.size();
    // Several ** in a row mean no more than one.
    const bool once = last || parts_[next + 1] != kDescend;
    if (!last) walk(at, next + 1, named);
    if (!once) return;
    for (const FileTree::Entry& entry : entries_of(tree_, at)) {
      const std::string name = entry.name();
      if (name.starts_with('.') || name == kDescend) continue;
      const bool directory = entry.is_directory;
      if (directory && !entry.is_link) walk(at / name, next, named);
      if (last && !directory) walk(at / name, next + 1, named);
    }
  }

  static void sort(std::vector<fs::path>& paths) {
    std::ranges::sort(paths, {}, [](const fs::path& path) { return path.native(); });
    const auto repeated = std::ranges::unique(paths);
    paths.erase(repeated.begin(), repeated.end());
  }

  [[noreturn]] void fail_both() const {
    fail_input("data",
               "'{}': {} has exactly this name, but as a pattern the name also matches "
               "{}, {}; to read only the first, put a backslash before each * ? and [. "
               "To read the others, rename the first",
               pattern_.string(), named_.front().string(),
               counted(std::ssize(matched_), "other"), matched_.front().string());
  }

  fs::path pattern_;
  const FileTree& tree_;
  fs::path start_;  ///< empty: the parts tell where the walk begins
  std::vector<fs::path> parts_;
  bool files_only_ = false;
  std::vector<fs::path> named_;
  std::vector<fs::path> matched_;
};

}  // namespace

bool is_pattern(const fs::path& path) { return has_wildcard(path.native()); }

bool means_everything(const fs::path& pattern) {
  return pattern.filename() == "*" || pattern.filename() == kDescend;
}

std::vector<fs::path> expand_pattern(const fs::path& pattern) {
  // Only an InputSet asks a store what an address names.
  if (objects::is_address(pattern)) return {pattern};
  return expand_pattern(pattern, local_tree());
}

std::vector<fs::path> expand_pattern(const fs::path& pattern, const FileTree& tree) {
  std::vector<fs::path> paths{pattern};
  if (is_pattern(pattern)) paths = PatternWalk(pattern, tree).matches();
  for (const fs::path& path : paths) check_utf8_path(path);
  return paths;
}

void check_utf8_path(const fs::path& path) {
  const auto at = find_invalid_utf8(path.native());
  if (!at) return;
  fail_input("data",
             "{}: the path is not UTF-8 (byte {} is 0x{:02x}), and records of data "
             "cannot hold it; rename the file or directory",
             readable(path.string()), *at,
             static_cast<unsigned char>(path.native()[*at]));
}

}  // namespace longhaul::data
