#include "longhaul/format/dtype.h"

#include <array>
#include <bit>
#include <cmath>

namespace longhaul::format {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  size_t size;
};

// The table is in the order of the enumeration.
constexpr std::array<Row, 13> kRows{{{DType::F32, "F32", 4},
                                     {DType::BF16, "BF16", 2},
                                     {DType::F16, "F16", 2},
                                     {DType::F64, "F64", 8},
                                     {DType::I64, "I64", 8},
                                     {DType::I32, "I32", 4},
                                     {DType::I16, "I16", 2},
                                     {DType::I8, "I8", 1},
                                     {DType::U64, "U64", 8},
                                     {DType::U32, "U32", 4},
                                     {DType::U16, "U16", 2},
                                     {DType::U8, "U8", 1},
                                     {DType::Bool, "BOOL", 1}}};

}  // namespace

size_t dtype_size(DType dtype) { return kRows[static_cast<size_t>(dtype)].size; }

std::string_view dtype_name(DType dtype) {
  return kRows[static_cast<size_t>(dtype)].name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  }
  // 65520 and more round to infinity.
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);
  if (magnitude < 0x38800000U) {
    // The result is subnormal. Adding 0.5 shifts the mantissa to units of 2^-24 and
    // rounds to even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
  }
  const uint32_t rounding = 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((magnitude + rounding - 0x38000000U) >> 13));
}

float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  if (exponent == 0x1F) {
    const uint32_t quiet = mantissa == 0 ? 0 : 0x400000U;
    return std::bit_cast<float>(sign | 0x7F800000U | quiet | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

}  // namespace longhaul::format
