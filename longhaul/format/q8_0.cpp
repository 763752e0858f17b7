#include "longhaul/format/q8_0.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/format/dtype.h"

namespace longhaul::format {
namespace {

/// Returns the nearest integer, halves away from zero. The difference is exact.
inline float rounded_away(float value) {
  const float size = std::fabs(value);
  const float whole = std::floor(size);
  return std::copysign(whole + std::floor(2.0F * (size - whole)), value);
}

void quantize_block(const float* elements, std::byte* bytes) {
  float largest = 0.0F;
  for (int i = 0; i < kQ8Elements; ++i) {
    largest = std::max(largest, std::fabs(elements[i]));
  }
  const float scale = largest / 127.0F;
  const float inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
  const uint16_t stored = float_to_f16(scale);
  if (!std::isfinite(f16_to_float(stored))) {
    fail_input(
        "dtype",
        "a block of Q8_0 has an element of magnitude {:.6g}, and its scale in fp16 "
        "holds at most 127 * 65504; take bf16 or fp32",
        largest);
  }
  std::memcpy(bytes, &stored, 2);
  auto* const out = reinterpret_cast<int8_t*>(bytes + 2);
  // The inverse of a scale below the normal numbers overflows. Such elements are zeros.
  if (!std::isfinite(inverse)) {
    std::fill_n(out, kQ8Elements, int8_t{0});
    return;
  }
  for (int i = 0; i < kQ8Elements; ++i) {
    out[i] = static_cast<int8_t>(rounded_away(elements[i] * inverse));
  }
}

}  // namespace

void quantize_q8_0(std::span<const float> elements, std::span<std::byte> bytes) {
  const size_t blocks = elements.size() / kQ8Elements;
  LH_CHECK(elements.size() % kQ8Elements == 0 && bytes.size() == blocks * kQ8Bytes,
           "dtype", "{} elements for {} bytes of Q8_0", elements.size(), bytes.size());
  for (size_t i = 0; i < blocks; ++i) {
    quantize_block(elements.data() + i * kQ8Elements, bytes.data() + i * kQ8Bytes);
  }
}

void read_q8_0(std::span<const std::byte> blocks, int64_t first, std::span<float> out) {
  const auto end = static_cast<uint64_t>(first) + out.size();
  LH_CHECK(first >= 0 && end <= blocks.size() / kQ8Bytes * kQ8Elements, "dtype",
           "elements {} to {} of {} bytes of Q8_0", first, end, blocks.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t at = static_cast<uint64_t>(first) + i;
    const std::byte* const block = blocks.data() + at / kQ8Elements * kQ8Bytes;
    uint16_t scale = 0;
    std::memcpy(&scale, block, 2);
    const auto whole = std::to_integer<uint8_t>(block[2 + at % kQ8Elements]);
    out[i] = f16_to_float(scale) * static_cast<float>(static_cast<int8_t>(whole));
  }
}

}  // namespace longhaul::format
