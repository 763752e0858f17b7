#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace longhaul::format {

/// Element types of files and buffers; the names are those of safetensors.
enum class DType : uint8_t {
  F32,
  BF16,
  F16,
  F64,
  I64,
  I32,
  I16,
  I8,
  U64,
  U32,
  U16,
  U8,
  Bool
};

/// Returns the bytes of one element.
size_t dtype_size(DType dtype);
/// Returns the name in safetensors: "F32", "BF16" ...
std::string_view dtype_name(DType dtype);
/// Returns the dtype of a safetensors name, or nothing for an unknown name.
std::optional<DType> dtype_from_name(std::string_view name);

/// Converts to bf16, rounded to nearest even. A NaN stays a quiet NaN.
inline uint16_t float_to_bf16(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return static_cast<uint16_t>((bits >> 16) | 0x0040U);
  }
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}
inline float bf16_to_float(uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}
uint16_t float_to_f16(float value);
float f16_to_float(uint16_t bits);

}  // namespace longhaul::format
