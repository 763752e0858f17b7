#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/base/hash.h"
#include "longhaul/data/store/store.h"

namespace longhaul::data {

/// Texts for messages about damaged files.
struct ProofWords {
  std::string record = "store.json";
  std::string advice = "copy the store again or build it again";
  /// Stands after a message about a damaged block.
  std::string whole = " ('longhaul verify' looks at all of it)";
};

/// The hashes of the blocks of a shard's files, for ProvedFile. The file of hashes is
/// read when the first hash is needed. Any thread may call it.
class ShardHashes {
 public:
  ShardHashes(fs::path dir, StoreFile file, ProofWords words = {})
      : dir_(std::move(dir)), file_(std::move(file)), words_(std::move(words)) {}
  /// Returns the hash that block `block` of the shard's file `name` must have. Throws
  /// InputError when the file of hashes is damaged itself, or has no hash for the block.
  std::string expected(const std::string& name, uint64_t block) const;
  fs::path path() const { return dir_ / file_.name; }
  const ProofWords& words() const { return words_; }

 private:
  void load() const;

  fs::path dir_;
  StoreFile file_;
  ProofWords words_;
  mutable std::once_flag once_;
  /// By file name, the joined hashes of the file's blocks.
  mutable std::map<std::string, std::string> hashes_;
};

/// A mapped file of a shard. A block of 1 MiB is compared with its hash when the block is
/// first touched. Any thread may read.
class ProvedFile {
 public:
  ProvedFile() = default;
  /// Maps a file. Compares no blocks when `hashes` is null.
  ProvedFile(const fs::path& dir, const StoreFile& file,
             std::shared_ptr<const ShardHashes> hashes);

  /// Returns true if there is no file, or an empty file.
  bool empty() const { return mapped_.bytes().empty(); }
  /// Returns all bytes without comparing blocks.
  std::span<const std::byte> unproved() const { return mapped_.bytes(); }
  /// Returns the address of byte `begin`. First compares the blocks of bytes [begin,
  /// begin + size) with their hashes. For a damaged block it throws InputError that names
  /// the file, the block, the place of the block and both hashes.
  const std::byte* at(uint64_t begin, uint64_t size) const {
    if (good_ && size > 0) {
      const uint64_t last = (begin + size - 1) / kHashBlockBytes;
      for (uint64_t block = begin / kHashBlockBytes; block <= last; ++block) {
        if (!good_[block].load(std::memory_order_relaxed)) prove(block);
      }
    }
    return mapped_.bytes().data() + begin;
  }

 private:
  void prove(uint64_t block) const;

  MappedFile mapped_;
  std::string name_;
  std::shared_ptr<const ShardHashes> hashes_;
  /// By block, whether the block was found good. Two threads that touch a block at the
  /// same moment both compare the block.
  std::unique_ptr<std::atomic<bool>[]> good_;
};

/// Returns the text of a file that has the size and the hash of its record. For another
/// file it throws InputError with both hashes and what to do.
std::string read_proved_text(const fs::path& path, const StoreFile& file,
                             const ProofWords& words = {});

}  // namespace longhaul::data
