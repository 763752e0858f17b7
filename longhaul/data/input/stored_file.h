#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/data/input/input_set.h"
#include "longhaul/data/places/object_reader.h"

namespace longhaul::data {

/// An input file as it lies on the disk or in an object store, for the readers of all
/// formats. Bytes of [hash_begin, hash_end) are hashed when they are read, and must be
/// read in order. The bytes of an object up to hash_end are requested before they are
/// needed. Not thread-safe.
class StoredFile {
 public:
  /// Throws InputError when the length of the file has changed since the InputSet was
  /// made.
  explicit StoredFile(const InputFile& file, uint64_t hash_begin = 0,
                      uint64_t hash_end = UINT64_MAX);
  ~StoredFile();

  const fs::path& path() const { return path_; }
  uint64_t size() const { return size_; }
  Compression compression() const { return compression_; }
  /// Returns whether the file is an object, so that other code cannot open its path.
  bool is_object() const { return object_ != nullptr; }

  /// Requests the bytes of an object from `offset` on, before they are read. Does nothing
  /// for a file of the disk.
  void begin(uint64_t offset);
  /// Reads the bytes from `offset` on, at most to.size(), and hashes the bytes in the
  /// hash range. Returns fewer bytes only at the end of the file.
  std::span<const char> read(uint64_t offset, std::span<char> to);
  /// Reads exactly to.size() bytes, without hashing them. Does not change offset().
  void read_at(uint64_t offset, std::span<char> to) const;
  /// Hashes bytes that were not read with read(), wherever the bytes lie in the file.
  void hash_more(std::span<const char> bytes);

  /// Returns the offset after the last byte of the last read().
  uint64_t offset() const { return offset_; }
  uint64_t hashed_bytes() const { return hashed_; }
  /// Returns the xxh3-128 of the hashed bytes.
  std::string hash() const;

  /// Throws InputError "PATH: WHAT at byte OFFSET of SIZE; ACTION".
  [[noreturn]] void fail(std::string_view what, uint64_t offset,
                         std::string_view action = {}) const;

 private:
  struct Hash;
  fs::path path_;
  File file_;                             ///< not open for an object
  std::unique_ptr<ObjectReader> object_;  ///< null for a file of the disk
  uint64_t size_ = 0;
  Compression compression_;
  uint64_t hash_begin_;
  uint64_t hash_end_;
  uint64_t offset_ = 0;
  uint64_t hashed_ = 0;
  std::unique_ptr<Hash> hash_;
};

}  // namespace longhaul::data
