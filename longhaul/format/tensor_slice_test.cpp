#include "longhaul/format/tensor_slice.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>

#include "longhaul/base/error.h"

namespace longhaul::format {
namespace {

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

// Returns values that name their element: each value is the flat index in the whole
// tensor.
std::vector<float> values_of(const TensorSlice& box) {
  const TensorSlice whole = TensorSlice::whole(box.name, box.global_shape, box.dtype);
  std::vector<float> all(static_cast<size_t>(whole.num_elements()));
  std::iota(all.begin(), all.end(), 0.0F);
  std::vector<float> out(static_cast<size_t>(box.num_elements()));
  copy_box(whole, bytes_of(all), box, std::as_writable_bytes(std::span(out)));
  return out;
}

TensorSlice box_of(std::vector<int64_t> shape, std::vector<int64_t> offset,
                   std::vector<int64_t> extent) {
  TensorSlice box = TensorSlice::whole("w", std::move(shape), DType::F32);
  box.offset = std::move(offset);
  box.extent = std::move(extent);
  return box;
}

TEST(TensorSlice, BoxesOfEveryFlatRangeHoldItsElementsInOrderAndAreFew) {
  const std::vector<std::vector<int64_t>> shapes = {
      {7}, {4, 5}, {3, 4, 5}, {2, 1, 3, 2}, {1, 6}};
  for (const auto& shape : shapes) {
    const TensorSlice whole = TensorSlice::whole("w", shape, DType::F32);
    for (int64_t begin = 0; begin <= whole.num_elements(); ++begin) {
      for (int64_t end = begin; end <= whole.num_elements(); ++end) {
        const auto boxes = flat_range_boxes(whole, begin, end);
        ASSERT_LE(boxes.size(), 2 * shape.size() - 1);
        int64_t next = begin;
        for (const TensorSlice& box : boxes) {
          box.check();
          for (const float value : values_of(box)) {
            ASSERT_EQ(static_cast<int64_t>(value), next++);
          }
        }
        ASSERT_EQ(next, end);
      }
    }
  }
}

TEST(TensorSlice, BoxesOfAPartOfATensorStayInsideIt) {
  const TensorSlice part = box_of({8, 10}, {2, 5}, {4, 5});
  const std::vector<float> all = values_of(part);
  const auto boxes = flat_range_boxes(part, 3, 18);
  EXPECT_EQ(boxes.size(), 3U);
  size_t next = 3;
  for (const TensorSlice& box : boxes) {
    for (const float value : values_of(box)) EXPECT_EQ(value, all.at(next++));
  }
  EXPECT_EQ(next, 18U);
}

TEST(TensorSlice, ScalarsAndEmptyTensorsHaveOneBoxAndNone) {
  const TensorSlice scalar = TensorSlice::whole("s", {}, DType::F32);
  EXPECT_EQ(scalar.num_elements(), 1);
  EXPECT_EQ(flat_range_boxes(scalar, 0, 1).size(), 1U);
  EXPECT_TRUE(
      flat_range_boxes(TensorSlice::whole("e", {3, 0}, DType::F32), 0, 0).empty());
}

TEST(TensorSlice, IntersectionIsWhatBothHold) {
  const auto both =
      intersect(box_of({8, 8}, {0, 2}, {5, 4}), box_of({8, 8}, {3, 0}, {5, 4}));
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->offset, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(both->extent, (std::vector<int64_t>{2, 2}));
  EXPECT_FALSE(intersect(box_of({8}, {0}, {4}), box_of({8}, {4}, {4})).has_value());
  EXPECT_THROW(intersect(box_of({8}, {0}, {4}), box_of({9}, {4}, {4})), Error);
}

TEST(TensorSlice, ABoxOutsideItsTensorIsRefused) {
  EXPECT_THROW(box_of({8}, {5}, {4}).check(), Error);
  EXPECT_THROW(box_of({8}, {-1}, {4}).check(), Error);
  EXPECT_THROW(box_of({8, 2}, {0}, {4}).check(), Error);
  EXPECT_THROW(box_of({8}, {1}, {INT64_MAX}).check(), Error);
}

// Reads a stored box into another one, in windows so small that each row is split.
TEST(TensorSlice, ReadingByRangesGivesWhatCopyingGivesForEveryWindow) {
  const TensorSlice stored = box_of({6, 7, 5}, {1, 2, 0}, {4, 5, 5});
  const std::vector<float> values = values_of(stored);
  const TensorSlice wanted = box_of({6, 7, 5}, {0, 3, 1}, {5, 4, 3});
  for (const uint64_t window : {1, 8, 40, 100, 1000, 100000}) {
    uint64_t longest = 0;
    std::vector<float> out(static_cast<size_t>(wanted.num_elements()), -1.0F);
    const int64_t copied = read_box(
        [&](uint64_t offset, std::span<std::byte> bytes) {
          longest = std::max<uint64_t>(longest, bytes.size());
          ASSERT_LE(offset + bytes.size(), 4 * values.size());
          std::memcpy(bytes.data(), bytes_of(values).data() + offset, bytes.size());
        },
        stored, wanted, std::as_writable_bytes(std::span(out)), window);
    EXPECT_EQ(copied, 4 * 4 * 3);
    EXPECT_LE(longest, std::max<uint64_t>(window, 4));
    std::vector<float> expected(out.size(), -1.0F);
    copy_box(stored, bytes_of(values), wanted,
             std::as_writable_bytes(std::span(expected)));
    EXPECT_EQ(out, expected);
  }
}

// Each element of the target box that the source box has holds its flat index in the
// tensor, and no other element does.
TEST(TensorSlice, CopyMovesExactlyTheCommonElementsForEveryPairOfBoxes) {
  const std::vector<int64_t> shape = {3, 3, 2};
  std::vector<TensorSlice> boxes;
  for (int code = 0; code < 1 << 6; ++code) {
    TensorSlice box = TensorSlice::whole("w", shape, DType::F32);
    for (size_t d = 0; d < 3; ++d) {
      const int choice =
          (code >> (2 * d)) & 3;  // whole, first row, last row, a middle cut
      if (choice == 1) box.extent[d] = 1;
      if (choice == 2) {
        box.offset[d] = shape[d] - 1;
        box.extent[d] = 1;
      }
      if (choice == 3) {
        box.offset[d] = 1;
        box.extent[d] = shape[d] - 1;
      }
    }
    boxes.push_back(box);
  }
  const auto holds = [](const TensorSlice& box, const std::vector<int64_t>& at) {
    for (size_t d = 0; d < 3; ++d) {
      if (at[d] < box.offset[d] || at[d] >= box.offset[d] + box.extent[d]) return false;
    }
    return true;
  };
  for (const TensorSlice& src : boxes) {
    std::vector<float> from;
    for (int64_t i = 0; i < 18; ++i) {
      if (holds(src, {i / 6, i / 2 % 3, i % 2})) from.push_back(static_cast<float>(i));
    }
    for (const TensorSlice& dst : boxes) {
      std::vector<float> expected;
      for (int64_t i = 0; i < 18; ++i) {
        const std::vector<int64_t> at = {i / 6, i / 2 % 3, i % 2};
        if (holds(dst, at))
          expected.push_back(holds(src, at) ? static_cast<float>(i) : -1.0F);
      }
      std::vector<float> out(expected.size(), -1.0F);
      copy_box(src, bytes_of(from), dst, std::as_writable_bytes(std::span(out)));
      ASSERT_EQ(out, expected) << describe_slice(src) << " to " << describe_slice(dst);
    }
  }
}

TEST(TensorSlice, CopyConvertsBetweenFloatTypesOnly) {
  const TensorSlice from = TensorSlice::whole("w", {3}, DType::F32);
  const std::vector<float> values = {1.0F, -2.5F, 3.0e5F};
  for (const DType dtype : {DType::BF16, DType::F16, DType::F64}) {
    TensorSlice to = from;
    to.dtype = dtype;
    std::vector<std::byte> there(3 * dtype_size(dtype));
    copy_box(from, bytes_of(values), to, there);
    std::vector<float> back(3);
    copy_box(to, there, from, std::as_writable_bytes(std::span(back)));
    EXPECT_EQ(back[0], 1.0F);
    EXPECT_EQ(back[1], -2.5F);
    const float last = bf16_to_float(float_to_bf16(3.0e5F));
    EXPECT_EQ(back[2], dtype == DType::F16    ? std::numeric_limits<float>::infinity()
                       : dtype == DType::BF16 ? last
                                              : 3.0e5F);
  }
  TensorSlice integers = from;
  integers.dtype = DType::I32;
  std::vector<std::byte> out(12);
  EXPECT_THROW(copy_box(from, bytes_of(values), integers, out), Error);
}

TEST(TensorSlice, ABufferOfAnotherSizeIsRefused) {
  const TensorSlice from = TensorSlice::whole("w", {3}, DType::F32);
  const std::vector<float> values(3);
  std::vector<std::byte> out(11);
  EXPECT_THROW(copy_box(from, bytes_of(values), from, out), Error);
}

}  // namespace
}  // namespace longhaul::format
