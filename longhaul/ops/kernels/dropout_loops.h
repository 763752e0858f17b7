#pragma once

#include "longhaul/ops/kernels/draws.h"

namespace longhaul::kernels {
namespace {

/// Returns for each lane the group of four columns that it draws for. The order lets
/// in_order() shuffle within 128 bits only: element m of 128-bit part p draws for group m
/// * (kLanes / 4) + p.
LH_INLINE Words column_groups() {
  uint32_t group[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) {
    group[i] = static_cast<uint32_t>(i % 4 * (kLanes / 4) + i / 4);
  }
  return load_words(group);
}

/// Reorders the draws of column_groups() to 4 kLanes consecutive columns.
LH_INLINE void in_order(Words (&w)[4]) {
  const Words a = interleave_lower<32>(w[0], w[1]);
  const Words b = interleave_upper<32>(w[0], w[1]);
  const Words c = interleave_lower<32>(w[2], w[3]);
  const Words d = interleave_upper<32>(w[2], w[3]);
  w[0] = interleave_lower<64>(a, c);
  w[1] = interleave_upper<64>(a, c);
  w[2] = interleave_lower<64>(b, d);
  w[3] = interleave_upper<64>(b, d);
}

template <typename T>
LH_INLINE void dropout_row(const T* x, const Philox& philox,
                           const SequenceWords& sequence, uint32_t index,
                           const Draws& draws, uint32_t first_group, int64_t columns,
                           T* y) {
  const Words threshold = same_words(draws.threshold);
  const Vec scale = set1(draws.scale);
  const Words groups = add_words(same_words(first_group), column_groups());
  for (int64_t first = 0; first < columns; first += 4 * kLanes) {
    Words drawn[4] = {add_words(same_words(static_cast<uint32_t>(first / 4)), groups),
                      same_words(index), same_words(sequence.lower),
                      same_words(sequence.upper)};
    philox.draw(drawn);
    in_order(drawn);
    for_lanes(smaller(4 * kLanes, columns - first), [&](int64_t i, auto lanes) {
      const Vec kept = mul(load(x + first + i, lanes), scale);
      store(y + first + i, where_at_least(drawn[i / kLanes], threshold, kept), lanes);
    });
  }
}

template <typename T>
void loop(const Dropout<T>& a) {
  const Philox philox(a.draws.key);
#pragma omp parallel for schedule(static) if (a.rows * a.columns > kParallelElements)
  for (int64_t r = 0; r < a.rows; ++r) {
    dropout_row(a.x + r * a.columns, philox, SequenceWords(a.sequences[r], 0),
                static_cast<uint32_t>(a.index[r]), a.draws, a.first_group, a.columns,
                a.y + r * a.columns);
  }
}

}  // namespace
}  // namespace longhaul::kernels
