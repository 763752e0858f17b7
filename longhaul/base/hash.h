#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

/// Returns the xxh3-128 as 32 lower-case hex digits (canonical big-endian form).
std::string hash_hex(std::span<const std::byte> bytes);
std::string hash_hex(std::string_view text);

/// Returns the xxh3-64, for comparisons inside a run. It is not stored.
uint64_t hash_number(std::span<const std::byte> bytes);

/// Files are hashed by blocks of this size, so that a part can be verified.
inline constexpr uint64_t kHashBlockBytes = uint64_t{1} << 20;

/// Hashes a stream block by block. Not thread-safe.
class BlockHasher {
 public:
  BlockHasher();
  ~BlockHasher();
  BlockHasher(BlockHasher&&) noexcept;

  void update(std::span<const std::byte> bytes);
  /// Ends the last block; returns one hash per started 1 MiB block.
  std::vector<std::string> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns one hash for the whole, from its blocks: the hash of their concatenated hex.
std::string combine_hashes(const std::vector<std::string>& blocks);

}  // namespace longhaul
