#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "longhaul/format/dtype.h"

namespace longhaul::checkpoint {

/// `count` runs of `run` bytes each in one file, `stride` bytes from start to start: the
/// bytes of a box that lies in a larger box. run <= stride; count and run are positive.
struct ByteRuns {
  uint64_t file = 0;
  uint64_t start = 0;
  uint64_t run = 0;
  uint64_t count = 1;
  uint64_t stride = 0;

  /// Returns the offset after the last byte.
  uint64_t end() const { return start + (count - 1) * stride + run; }
  uint64_t bytes() const { return run * count; }

  /// Returns how many bytes of the runs lie in [from, to).
  uint64_t bytes_in(uint64_t from, uint64_t to) const {
    return bytes_before(to) - bytes_before(from);
  }

  /// Calls part(index of the run, first byte in the run, file offset, length) for each
  /// part of a run in [from, to), in ascending order.
  template <typename Part>
  void for_each_part(uint64_t from, uint64_t to, Part part) const {
    uint64_t index = from <= start ? 0 : (from - start) / stride;
    for (; index < count; ++index) {
      const uint64_t begin = start + index * stride;
      if (begin >= to) return;
      const uint64_t low = std::max(begin, from);
      const uint64_t high = std::min(begin + run, to);
      if (low < high) part(index, low - begin, low, high - low);
    }
  }

  bool operator==(const ByteRuns&) const = default;

 private:
  uint64_t bytes_before(uint64_t offset) const {
    if (offset <= start) return 0;
    const uint64_t whole = (offset - start) / stride;
    if (whole >= count) return bytes();
    return whole * run + std::min(run, offset - start - whole * stride);
  }
};

/// Runs of bytes and where they go: run number i to out + i * out_stride.
struct WantedRuns {
  ByteRuns source;
  format::DType stored = format::DType::F32;
  format::DType dtype = format::DType::F32;
  std::byte* out = nullptr;
  size_t out_stride = 0;
};

}  // namespace longhaul::checkpoint
