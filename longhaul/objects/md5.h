#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace longhaul::objects {

/// The MD5 of a stream, which stores give as the ETag of an object (RFC 1321). It finds
/// damage, and proves nothing against malice.
class Md5 {
 public:
  using Digest = std::array<std::byte, 16>;

  void update(std::span<const std::byte> bytes);
  /// Ends the stream, and returns its digest.
  Digest finish();

 private:
  void take_block(const std::byte* block);

  std::array<uint32_t, 4> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::array<std::byte, 64> block_{};
  uint64_t size_ = 0;
};

}  // namespace longhaul::objects
