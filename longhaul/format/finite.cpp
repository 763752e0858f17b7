#include "longhaul/format/finite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace longhaul::format {
namespace {

/// The number of elements that are checked before the next branch.
constexpr size_t kAtOnce = 1024;

/// Finds an element that is not finite: all bits of its exponent are set.
template <typename Bits>
std::optional<size_t> find_full_exponent(std::span<const std::byte> bytes,
                                         Bits exponent) {
  const size_t count = bytes.size() / sizeof(Bits);
  Bits block[kAtOnce];
  for (size_t first = 0; first < count; first += kAtOnce) {
    const size_t n = std::min(kAtOnce, count - first);
    std::memcpy(block, bytes.data() + first * sizeof(Bits), n * sizeof(Bits));
    unsigned found = 0;
    for (size_t i = 0; i < n; ++i) {
      found |= static_cast<unsigned>((block[i] & exponent) == exponent);
    }
    if (found == 0) continue;
    const Bits* const bad = std::find_if(
        block, block + n, [=](Bits bits) { return (bits & exponent) == exponent; });
    return first + static_cast<size_t>(bad - block);
  }
  return std::nullopt;
}

std::vector<int64_t> coordinates(const std::vector<int64_t>& shape, int64_t index) {
  std::vector<int64_t> place(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    place[d] = index % shape[d];
    index /= shape[d];
  }
  return place;
}

}  // namespace

std::optional<size_t> first_not_finite(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::F32:
      return find_full_exponent<uint32_t>(bytes, 0x7F800000U);
    case DType::BF16:
      return find_full_exponent<uint16_t>(bytes, 0x7F80U);
    case DType::F16:
      return find_full_exponent<uint16_t>(bytes, 0x7C00U);
    case DType::F64:
      return find_full_exponent<uint64_t>(bytes, 0x7FF0000000000000U);
    default:
      return std::nullopt;
  }
}

std::string describe_element(const std::string& name, const std::vector<int64_t>& shape,
                             int64_t index) {
  return fmt::format("{}[{}]", name, fmt::join(coordinates(shape, index), ", "));
}

int64_t whole_index(const TensorSlice& box, int64_t index) {
  const std::vector<int64_t> place = coordinates(box.extent, index);
  int64_t result = 0;
  for (size_t d = 0; d < place.size(); ++d) {
    result = result * box.global_shape[d] + box.offset[d] + place[d];
  }
  return result;
}

}  // namespace longhaul::format
