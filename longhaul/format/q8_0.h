#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace longhaul::format {

// Q8_0 stores 32 elements in 34 bytes: a scale d in fp16, then 32 integers q of 8 bits.
// An element is d * q.

inline constexpr int64_t kQ8Elements = 32;
inline constexpr uint64_t kQ8Bytes = 34;

/// Quantises whole blocks of finite values: d is the block's largest magnitude over 127,
/// and an element becomes the integer nearest to it over d, halves away from zero. The
/// bytes are those of ggml's reference (quantize_row_q8_0_ref) and of the Python package
/// gguf. Throws InputError where d is beyond fp16.
void quantize_q8_0(std::span<const float> elements, std::span<std::byte> bytes);

/// Fills `out` with elements [first, first + out.size()) of blocks.
void read_q8_0(std::span<const std::byte> blocks, int64_t first, std::span<float> out);

}  // namespace longhaul::format
