#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace longhaul::ops {

/// Which elements are dropped (Srivastava et al., "Dropout"). An element is kept iff its
/// draw is at least probability * 2^32, and is then scaled by 1 / (1 - probability).
///
/// The draw is word column % 4 of Philox4x32-10 (Salmon et al., "Parallel Random Numbers:
/// As Easy as 1, 2, 3") with `key`. The counter is (column / 4, index of the row in its
/// sequence, number of the sequence, head). So a draw is the same in every layout, form
/// and repetition.
struct Dropout {
  double probability = 0.0;  ///< in [0, 1); 0: nothing is dropped
  uint64_t key = 0;          ///< different for every run and place in the model
  /// The numbers of sequences in the run, int64 in [0, 2^48): for attention the number of
  /// each sequence, [B]; elsewhere the number of the sequence of each row. On a device
  /// without 64-bit numbers each number is two words, the lower one first: int32 [B, 2].
  at::Tensor sequences = {};
  /// The index of each row in its sequence, int32. Undefined for attention, where the
  /// position of a query is its index.
  at::Tensor index = {};
  int64_t first_head = 0;  ///< for attention: the number in the model of the first head
  /// Elsewhere: the number in the whole row of the first column that a rank has.
  int64_t first_column = 0;

  bool drops() const { return probability > 0.0; }
  /// Returns the smallest draw that keeps an element.
  uint32_t threshold() const;
  /// Returns the factor of kept elements: 1 / (1 - probability).
  float scale() const { return static_cast<float>(1.0 / (1.0 - probability)); }
};

/// Returns the factors of elements, scale() or 0 in fp32, for columns [first, first +
/// columns). `sequences`, `rows` (the index in the sequence) and `heads` are integers
/// [..., 1] that broadcast; the result is [..., columns]. Where draws.sequences has two
/// words for each number, `sequences` is int32 [..., 1, 2], and the others are int32.
/// Plain ATen operations on any device.
at::Tensor dropout_factors(const Dropout& draws, const at::Tensor& sequences,
                           const at::Tensor& rows, const at::Tensor& heads, int64_t first,
                           int64_t columns);

}  // namespace longhaul::ops
