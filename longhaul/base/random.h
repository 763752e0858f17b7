#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace longhaul {

/// Computes Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
/// SC11). It is a pure function of key and counter, so a number depends on what it is for
/// and never on who draws it or when.
constexpr std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low,
                                         uint64_t counter_high) {
  std::array<uint32_t, 4> c = {
      static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
      static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

/// Returns a key from a seed and a purpose ("init", "dropout", or a tensor's name).
uint64_t random_key(uint64_t seed, std::string_view purpose);

/// Returns a number of 24 bits, uniform in [0, 1).
inline float uniform_from_bits(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1.0p-24F;
}

/// Returns two independent standard normal numbers (Box-Muller) from two words.
std::array<float, 2> normal_from_bits(uint32_t a, uint32_t b);

}  // namespace longhaul
