#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace longhaul::rehearsal {

/// The memory that one rank has of its device: addresses without pages, and what is in
/// use. Sizes are rounded as the device of the tests rounds them: to 512 bytes, above
/// 4 KiB to an eighth of a power of two. A freed block is used again for the same size.
/// Not thread-safe: one thread plays a rank.
class Memory {
 public:
  Memory() = default;
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Returns the address of a block of at least `bytes` bytes, which nobody may read or
  /// write. Throws TemporaryError if the process may not have more addresses.
  void* take(size_t bytes);
  void give_back(void* address, size_t bytes);
  /// Returns whether the address lies in a block of this rank.
  bool has(const void* address) const;

  int64_t used() const { return used_; }
  /// Returns the most bytes that were in use at once.
  int64_t peak() const { return peak_; }

  static size_t rounded(size_t bytes);

 private:
  std::vector<std::byte*> regions_;
  size_t left_ = 0;  ///< bytes of the last region that were never taken
  std::map<size_t, std::vector<void*>> free_;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

/// While it lives, the memory of the fake device that the calling thread takes comes from
/// `memory`. Blocks keep the memory alive.
class PlayedMemory {
 public:
  explicit PlayedMemory(std::shared_ptr<Memory> memory);
  ~PlayedMemory();
  PlayedMemory(const PlayedMemory&) = delete;
  PlayedMemory& operator=(const PlayedMemory&) = delete;

  /// Returns the memory of the calling thread; null if no rank is played on it.
  static const std::shared_ptr<Memory>& current();

 private:
  std::shared_ptr<Memory> before_;
};

}  // namespace longhaul::rehearsal
