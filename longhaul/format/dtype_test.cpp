#include "longhaul/format/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "longhaul/format/tensor_slice.h"

namespace longhaul::format {
namespace {

// Every bit pattern of a 16-bit type that is a number comes back from fp32 unchanged.
TEST(DType, EveryF16AndBf16SurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float f16 = f16_to_float(half);
    if (std::isnan(f16)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(f16))));
    } else {
      ASSERT_EQ(float_to_f16(f16), half) << bits;
    }
    const float bf16 = bf16_to_float(half);
    if (std::isnan(bf16)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(bf16))));
    } else {
      ASSERT_EQ(float_to_bf16(bf16), half) << bits;
    }
  }
}

// The compiler's own _Float16 rounds in hardware or by the same standard.
TEST(DType, F16RoundsToNearestEvenAsTheHardwareDoes) {
  uint32_t state = 1;
  for (int i = 0; i < 2'000'000; ++i) {
    state = state * 1664525U + 1013904223U;
    const auto value = std::bit_cast<float>(state);
    if (std::isnan(value)) continue;
    const auto expected = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
    ASSERT_EQ(float_to_f16(value), expected) << value;
  }
}

TEST(DType, Bf16RoundsTiesToEven) {
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3F808000U)), 0x3F80);  // tie, down
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3F818000U)), 0x3F82);  // tie, up
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3F808001U)), 0x3F81);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
}

TEST(DType, DoublesRoundOnceOnTheirWayToBf16) {
  // The number is just above a tie of bf16. Rounded to the nearest fp32 first, it would
  // fall on the tie and go down.
  const double value = 1.0 + 0x1.0p-8 + 0x1.0p-40;
  uint16_t bits = 0;
  convert_elements(reinterpret_cast<const std::byte*>(&value), DType::F64,
                   reinterpret_cast<std::byte*>(&bits), DType::BF16, 1);
  EXPECT_EQ(bits, 0x3F81);
  const double below = -(1.0 + 0x1.0p-8 - 0x1.0p-40);
  convert_elements(reinterpret_cast<const std::byte*>(&below), DType::F64,
                   reinterpret_cast<std::byte*>(&bits), DType::BF16, 1);
  EXPECT_EQ(bits, 0xBF80);
}

TEST(DType, NamesAreThoseOfSafetensorsAndSizesFit) {
  EXPECT_EQ(dtype_name(DType::BF16), "BF16");
  EXPECT_EQ(dtype_size(DType::Bool), 1U);
  EXPECT_EQ(dtype_size(DType::U64), 8U);
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64, DType::I64,
                            DType::I32, DType::I16, DType::I8, DType::U64, DType::U32,
                            DType::U16, DType::U8, DType::Bool}) {
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_name("F8_E4M3"), std::nullopt);
}

}  // namespace
}  // namespace longhaul::format
