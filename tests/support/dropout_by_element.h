#pragma once

#include <ATen/ATen.h>

#include <cmath>

#include "longhaul/base/random.h"
#include "longhaul/ops/dropout.h"

namespace longhaul::ops {

/// Returns the factor of one element, as struct Dropout defines the factor. The generator
/// is philox(), which is tested against its published vectors.
inline float expected_factor(const Dropout& draws, int64_t sequence, int64_t row,
                             int64_t head, int64_t column) {
  const auto word = [](int64_t low, int64_t high) {
    return static_cast<uint64_t>(low) | (static_cast<uint64_t>(high) << 32);
  };
  const auto drawn = philox(draws.key, word(column / 4, row),
                            word(sequence & 0xFFFFFFFF, sequence >> 32 << 16 | head));
  return drawn.at(static_cast<size_t>(column % 4)) >=
                 std::round(draws.probability * 0x1p32)
             ? static_cast<float>(1.0 / (1.0 - draws.probability))
             : 0.0F;
}

/// Returns the factors of attention, [B, heads, queries, keys] fp32. The first query has
/// index `query`.
inline at::Tensor expected_factors(const Dropout& draws, int64_t heads, int64_t queries,
                                   int64_t keys, int64_t query = 0) {
  const int64_t B = draws.sequences.size(0);
  at::Tensor out = at::empty({B, heads, queries, keys});
  auto* to = out.data_ptr<float>();
  for (int64_t b = 0; b < B; ++b) {
    const auto sequence = draws.sequences[b].item<int64_t>();
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < queries; ++i) {
        for (int64_t j = 0; j < keys; ++j) {
          *to++ = expected_factor(draws, sequence, query + i, draws.first_head + h, j);
        }
      }
    }
  }
  return out;
}

}  // namespace longhaul::ops
