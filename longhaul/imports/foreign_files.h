#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/imports/pickle/pickle_tree.h"
#include "longhaul/system/limited_child.h"

namespace longhaul::imports {

/// A part of a file that holds one torch file: the whole file, or a record of a .distcp
/// file.
struct TorchPart {
  size_t file = 0;
  uint64_t begin = 0;
  uint64_t size = 0;
};

/// The files of a foreign checkpoint, by number. Files are opened when they are read, a
/// few at a time. Pickles are read in a child process with limits
/// (system/limited_child.h). Elements are read here, by ranges that were checked against
/// the file. Not thread-safe.
class ForeignFiles {
 public:
  /// Keeps all files inside of `root`, symbolic links followed. With an empty root files
  /// may lie anywhere.
  explicit ForeignFiles(const fs::path& root = {}, system::ChildLimits limits = {});

  /// Adds a file and returns its number. Throws InputError if the path is no ordinary
  /// file, or lies outside of the root.
  size_t add(const fs::path& path);
  const fs::path& path(size_t file) const { return files_[file].path; }
  uint64_t size(size_t file) const { return files_[file].size; }
  TorchPart whole(size_t file) const { return {file, 0, files_[file].size}; }

  /// Reads torch files, one tree each, in one child process.
  std::vector<PickleTree> read_trees(const std::vector<TorchPart>& parts) const;
  /// Reads a bare pickle (.metadata of a distributed checkpoint).
  PickleTree read_bare_pickle(size_t file) const;

  /// Reads bytes of a file. Throws InputError if the file has shrunk since.
  void read(size_t file, uint64_t offset, std::span<std::byte> bytes) const;
  /// Returns the file as memory, for elements that do not lie side by side.
  std::span<const std::byte> map(size_t file) const;

 private:
  struct Entry {
    fs::path path;
    uint64_t size = 0;
  };
  const File& open(size_t file) const;

  fs::path root_;
  system::ChildLimits limits_;
  std::vector<Entry> files_;
  std::map<fs::path, size_t> numbers_;
  // The least recently used file is last.
  mutable std::list<std::pair<size_t, File>> open_;
  mutable std::pair<size_t, MappedFile> mapped_;
};

}  // namespace longhaul::imports
