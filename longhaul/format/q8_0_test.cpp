#include "longhaul/format/q8_0.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/format/dtype.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::format {
namespace {

/// Returns the bytes of 32 elements, of which the first are given and the others are 0.
std::vector<std::byte> quantized(std::vector<float> elements) {
  elements.resize(kQ8Elements);
  std::vector<std::byte> bytes(kQ8Bytes);
  quantize_q8_0(elements, bytes);
  return bytes;
}

int whole(const std::vector<std::byte>& block, size_t at) {
  return static_cast<int8_t>(std::to_integer<uint8_t>(block[2 + at]));
}

uint16_t scale_bits(const std::vector<std::byte>& block) {
  return static_cast<uint16_t>(std::to_integer<int>(block[0]) |
                               std::to_integer<int>(block[1]) << 8);
}

TEST(Q8, ABlockIsAScaleAndTheNearestIntegers) {
  const auto block = quantized({127.0F, -127.0F, 1.0F, -2.4F, 2.6F});
  EXPECT_EQ(scale_bits(block), float_to_f16(1.0F));
  EXPECT_EQ(whole(block, 0), 127);
  EXPECT_EQ(whole(block, 1), -127);
  EXPECT_EQ(whole(block, 2), 1);
  EXPECT_EQ(whole(block, 3), -2);
  EXPECT_EQ(whole(block, 4), 3);
  EXPECT_EQ(whole(block, 31), 0);
}

TEST(Q8, HalvesGoAwayFromZero) {
  const auto block = quantized({127.0F, 0.5F, -0.5F, 2.5F, -2.5F, 0.49999997F});
  EXPECT_EQ(whole(block, 1), 1);
  EXPECT_EQ(whole(block, 2), -1);
  EXPECT_EQ(whole(block, 3), 3);
  EXPECT_EQ(whole(block, 4), -3);
  EXPECT_EQ(whole(block, 5), 0);
}

TEST(Q8, ZerosAndElementsBelowTheNormalNumbersAreZeros) {
  EXPECT_EQ(quantized({}), std::vector<std::byte>(kQ8Bytes));
  EXPECT_EQ(quantized({std::numeric_limits<float>::denorm_min()}),
            std::vector<std::byte>(kQ8Bytes));
}

TEST(Q8, AScaleBeyondFp16IsRefused) {
  EXPECT_EQ(scale_bits(quantized({127.0F * 65504.0F})), 0x7bff);
  EXPECT_HAS(message_of<InputError>([] { quantized({1.0F, -127.0F * 65536.0F}); }),
             "an element of magnitude 8.32307e+06");
}

TEST(Q8, WhatIsReadBackIsWithinHalfAScale) {
  std::vector<float> elements;
  for (int i = 0; i < 96; ++i) {
    elements.push_back(std::sin(static_cast<float>(i)) * static_cast<float>(i));
  }
  std::vector<std::byte> bytes(3 * kQ8Bytes);
  quantize_q8_0(elements, bytes);
  std::vector<float> part(50);
  read_q8_0(bytes, 20, part);
  for (size_t i = 0; i < part.size(); ++i) {
    EXPECT_NEAR(part[i], elements[20 + i], 96.0F / 127.0F * 0.51F) << i;
  }
  EXPECT_THROW(read_q8_0(bytes, 47, part), Error);
  EXPECT_THROW(quantize_q8_0(std::vector<float>(31), bytes), Error);
}

}  // namespace
}  // namespace longhaul::format
