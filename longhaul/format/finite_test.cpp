#include "longhaul/format/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace longhaul::format {
namespace {

/// Returns `count` ones of a dtype, one of which is replaced by another value.
std::vector<std::byte> ones_but(DType dtype, size_t count, size_t place, double value) {
  std::vector<double> values(count, 1.0);
  if (place < count) values[place] = value;
  std::vector<std::byte> bytes(count * dtype_size(dtype));
  convert_elements(reinterpret_cast<const std::byte*>(values.data()), DType::F64,
                   bytes.data(), dtype, count);
  return bytes;
}

TEST(Finite, TheFirstNanOrInfinityOfEveryFloatTypeIsFound) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64}) {
    for (const double bad :
         {std::nan(""), HUGE_VAL, -HUGE_VAL, std::copysign(std::nan(""), -1.0)}) {
      for (const size_t place : {size_t{0}, size_t{1023}, size_t{1024}, size_t{2500}}) {
        auto bytes = ones_but(dtype, 2501, place, bad);
        EXPECT_EQ(first_not_finite(bytes, dtype), place) << dtype_name(dtype);
        // Another element behind it that is not finite does not change the result.
        std::ranges::copy(ones_but(dtype, 1, 0, bad),
                          bytes.end() - static_cast<int64_t>(dtype_size(dtype)));
        EXPECT_EQ(first_not_finite(bytes, dtype), place) << dtype_name(dtype);
      }
    }
  }
}

TEST(Finite, TheLargestAndSmallestNumbersAndIntegersAreFinite) {
  const auto finite = [](DType dtype, double value) {
    return !first_not_finite(ones_but(dtype, 3, 1, value), dtype);
  };
  EXPECT_TRUE(finite(DType::F32, std::numeric_limits<float>::max()));
  EXPECT_TRUE(finite(DType::F32, -std::numeric_limits<float>::denorm_min()));
  EXPECT_TRUE(finite(DType::BF16, 3.38953139e38));
  EXPECT_TRUE(finite(DType::F16, -65504));
  EXPECT_TRUE(finite(DType::F64, std::numeric_limits<double>::max()));
  EXPECT_TRUE(!first_not_finite({}, DType::F32));
  const std::vector<std::byte> all_set(16, std::byte{0xFF});
  EXPECT_TRUE(!first_not_finite(all_set, DType::I64));
}

TEST(Finite, AnElementOfABoxIsNamedInItsWholeTensor) {
  TensorSlice box = TensorSlice::whole("w", {4, 6}, DType::F32);
  box.offset = {1, 2};
  box.extent = {2, 3};
  EXPECT_EQ(whole_index(box, 0), 8);
  EXPECT_EQ(whole_index(box, 4), 15);
  EXPECT_EQ(describe_element("w", {4, 6}, 15), "w[2, 3]");
  EXPECT_EQ(describe_element("s", {}, 0), "s[]");
}

}  // namespace
}  // namespace longhaul::format
