#include "longhaul/base/random.h"

#include <xxhash.h>

#include <cmath>
#include <numbers>

namespace longhaul {

std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low,
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

uint64_t random_key(uint64_t seed, std::string_view purpose) {
  return XXH3_64bits_withSeed(purpose.data(), purpose.size(), seed);
}

std::array<float, 2> normal_from_bits(uint32_t a, uint32_t b) {
  // (0, 1]: the logarithm of zero is never taken.
  const float u = (static_cast<float>(a >> 8) + 1.0F) * 0x1.0p-24F;
  const float angle = 2.0F * std::numbers::pi_v<float> * uniform_from_bits(b);
  const float radius = std::sqrt(-2.0F * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace longhaul
