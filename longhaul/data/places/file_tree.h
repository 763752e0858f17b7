#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/objects/object_store.h"

namespace longhaul::data {

/// Files and directories by their paths: those of the disk, or those that the keys of
/// objects make. The search for inputs uses only this interface, so that the same rules
/// hold for both.
class FileTree {
 public:
  struct Entry {
    fs::path path;
    bool is_directory = false;
    bool is_link = false;
    std::string name() const { return path.filename().string(); }
  };

  virtual ~FileTree() = default;
  /// Returns what a directory holds, in no order. An empty path means the current
  /// directory. Throws fs::filesystem_error for a directory that cannot be read.
  virtual std::vector<Entry> entries(const fs::path& directory) const = 0;
  /// Returns whether a path exists. A dangling link counts as existing, so that opening
  /// the link fails with an error and the link is not ignored.
  virtual bool is_there(const fs::path& path) const = 0;
  /// Returns whether a path exists. A dangling link does not count as existing.
  virtual bool exists(const fs::path& path) const = 0;
  virtual bool is_directory(const fs::path& path) const = 0;
  /// Returns the size of a file that is there.
  virtual uint64_t size(const fs::path& file) const = 0;
  /// Returns the content of a small file that is there.
  virtual std::string read_text(const fs::path& file) const = 0;
};

/// Returns the tree of this machine's paths.
const FileTree& local_tree();

/// What a listing of an object store names, as directories and files. Its paths begin as
/// addresses do: "s3://bucket/dir/a.jsonl".
class ListedTree final : public FileTree {
 public:
  /// Asks the store for all that a pattern may match. A plain address matches the object
  /// of this name; if there is none, it matches all objects below it.
  ListedTree(std::shared_ptr<objects::ObjectStore> store,
             const objects::Address& pattern);

  std::vector<Entry> entries(const fs::path& directory) const override;
  bool is_there(const fs::path& path) const override;
  bool exists(const fs::path& path) const override { return is_there(path); }
  bool is_directory(const fs::path& path) const override;
  uint64_t size(const fs::path& file) const override;
  std::string read_text(const fs::path& file) const override;

  /// Returns the object of a path; null if there is none.
  const objects::ObjectInfo* object(const fs::path& path) const;
  const std::shared_ptr<objects::ObjectStore>& store() const { return store_; }
  /// Returns the objects whose keys are no paths, since a part of the key is empty, "."
  /// or "..".
  const std::vector<fs::path>& unnameable() const { return unnameable_; }

 private:
  void add(objects::ObjectInfo object);
  /// Returns the key of a path, without slashes at its end.
  std::string key_of(const fs::path& path) const;

  std::shared_ptr<objects::ObjectStore> store_;
  std::string bucket_;
  std::map<std::string, objects::ObjectInfo> objects_;  ///< by key
  std::map<std::string, std::vector<Entry>> directories_;
  std::vector<fs::path> unnameable_;
};

}  // namespace longhaul::data
