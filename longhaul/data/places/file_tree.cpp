#include "longhaul/data/places/file_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::data {
namespace {

class LocalTree final : public FileTree {
 public:
  std::vector<Entry> entries(const fs::path& directory) const override {
    std::vector<Entry> found;
    const fs::path start = directory.empty() ? "." : directory;
    for (const fs::directory_entry& entry : fs::directory_iterator(start)) {
      found.push_back({entry.path(), entry.is_directory(), entry.is_symlink()});
    }
    return found;
  }
  bool is_there(const fs::path& path) const override {
    std::error_code ignored;
    return fs::exists(fs::symlink_status(path, ignored));
  }
  bool exists(const fs::path& path) const override { return fs::exists(path); }
  bool is_directory(const fs::path& path) const override {
    return fs::is_directory(path);
  }
  uint64_t size(const fs::path& file) const override { return fs::file_size(file); }
  std::string read_text(const fs::path& file) const override {
    return longhaul::read_text(file);
  }
};

std::string parent_of(const std::string& key) {
  const size_t slash = key.rfind('/');
  return slash == std::string::npos ? std::string() : key.substr(0, slash);
}

/// Returns where the listing for a pattern begins: the path's parts before the first with
/// * ? or [. For a plain address it is the address itself.
objects::Address fixed_part(const objects::Address& pattern) {
  const size_t magic = find_wildcard(pattern.key);
  if (magic == std::string::npos) return pattern;
  return {pattern.bucket, parent_of(pattern.key.substr(0, magic))};
}

}  // namespace

const FileTree& local_tree() {
  static const LocalTree tree;
  return tree;
}

ListedTree::ListedTree(std::shared_ptr<objects::ObjectStore> store,
                       const objects::Address& pattern)
    : store_(std::move(store)), bucket_("s3://" + pattern.bucket) {
  const objects::Address place = fixed_part(pattern);
  if (place == pattern && !place.key.empty()) {
    if (auto object = store_->look(place)) {
      add(std::move(*object));
      return;
    }
  }
  for (objects::ObjectInfo& object : store_->list(place, /*versions=*/false))
    add(std::move(object));
}

void ListedTree::add(objects::ObjectInfo object) {
  std::string key = object.address.key;
  if (!objects::is_path(key)) {
    unnameable_.emplace_back(object.address.text());
    return;
  }
  if (!objects_.emplace(key, std::move(object)).second) return;
  for (bool is_directory = false; !key.empty(); is_directory = true) {
    const std::string parent = parent_of(key);
    const bool known = directories_.contains(parent);
    directories_[parent].push_back({bucket_ + "/" + key, is_directory, false});
    // The parents of a known directory are entries already.
    if (known) return;
    key = parent;
  }
}

std::string ListedTree::key_of(const fs::path& path) const {
  std::string text = path.string();
  if (!text.starts_with(bucket_)) return {};
  text.erase(0, std::min(text.size(), bucket_.size() + 1));
  while (text.ends_with('/')) text.pop_back();
  return text;
}

std::vector<FileTree::Entry> ListedTree::entries(const fs::path& directory) const {
  const auto found = directories_.find(key_of(directory));
  return found == directories_.end() ? std::vector<Entry>() : found->second;
}

bool ListedTree::is_there(const fs::path& path) const {
  return object(path) != nullptr || is_directory(path);
}

bool ListedTree::is_directory(const fs::path& path) const {
  return directories_.contains(key_of(path));
}

uint64_t ListedTree::size(const fs::path& file) const {
  const objects::ObjectInfo* found = object(file);
  LH_CHECK(found != nullptr, "data", "{}: not in the listing", file.string());
  return found->size;
}

std::string ListedTree::read_text(const fs::path& file) const {
  const objects::ObjectInfo* found = object(file);
  LH_CHECK(found != nullptr, "data", "{}: not in the listing", file.string());
  if (auto text = store_->read_text(found->address)) return *std::move(text);
  throw InputError("data", file.string() +
                               ": was there when this command began, and is gone; start "
                               "again when no program writes to the inputs any more");
}

const objects::ObjectInfo* ListedTree::object(const fs::path& path) const {
  const auto found = objects_.find(key_of(path));
  return found == objects_.end() ? nullptr : &found->second;
}

}  // namespace longhaul::data
