#include "longhaul/base/random.h"

#include <xxhash.h>

#include <cmath>
#include <numbers>

namespace longhaul {

uint64_t random_key(uint64_t seed, std::string_view purpose) {
  return XXH3_64bits_withSeed(purpose.data(), purpose.size(), seed);
}

std::array<float, 2> normal_from_bits(uint32_t a, uint32_t b) {
  // u lies in (0, 1], so the logarithm of zero is never taken.
  const float u = (static_cast<float>(a >> 8) + 1.0F) * 0x1.0p-24F;
  const float angle = 2.0F * std::numbers::pi_v<float> * uniform_from_bits(b);
  const float radius = std::sqrt(-2.0F * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace longhaul
