#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace longhaul {

/// The reflected polynomials of CRC-32, which zip has, and of CRC-32C (Castagnoli).
inline constexpr uint32_t kCrc32 = 0xEDB88320U;
inline constexpr uint32_t kCrc32c = 0x82F63B78U;

/// Returns the checksum of bytes by a reflected polynomial.
template <uint32_t kPolynomial>
uint32_t crc_of(std::span<const std::byte> bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> values{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) {
        value = (value >> 1U) ^ ((value & 1U) != 0 ? kPolynomial : 0U);
      }
      values[i] = value;
    }
    return values;
  }();
  uint32_t crc = 0xFFFFFFFFU;
  for (const std::byte byte : bytes) {
    crc = table[(crc ^ static_cast<uint32_t>(byte)) & 0xFFU] ^ (crc >> 8U);
  }
  return ~crc;
}

}  // namespace longhaul
