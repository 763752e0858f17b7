#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace longhaul::ops {

/// Which elements are dropped (Srivastava et al., "Dropout"). One is kept iff its draw is
/// at least probability * 2^32, and then scaled by 1 / (1 - probability). The draw is
/// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3") of `key`
/// at the counter (column / 4, row's index in its sequence, the sequence's number, head),
/// word column % 4: the same in every layout, form and repetition.
struct Dropout {
  double probability = 0.0;  ///< in [0, 1); 0: nothing is dropped
  uint64_t key = 0;          ///< another one for every run and place in the model
  /// int64, in [0, 2^48): number in the run of each row's sequence; of attention of each
  /// sequence, [B].
  at::Tensor sequences = {};
  /// int32, of each row in its sequence; of attention undefined: queries have their own.
  at::Tensor index = {};
  int64_t first_head = 0;  ///< of attention: number in the whole model of head 0 here

  bool drops() const { return probability > 0.0; }
  /// Draws below it drop.
  uint32_t threshold() const;
  /// Of what is kept: 1 / (1 - probability).
  float scale() const { return static_cast<float>(1.0 / (1.0 - probability)); }
};

/// x [T, H] with some of its elements dropped; `draws` has sequences and index [T].
/// Nothing of x is kept for the backward, which draws again.
at::Tensor dropout(const at::Tensor& x, const Dropout& draws, bool fused);

/// What elements are multiplied by, fp32: scale() or 0, for columns [first, first +
/// columns). `sequences`, `rows` (index in the sequence) and `heads` are integers
/// [..., 1] that broadcast; result [..., columns]. Plain ATen operations on any device.
at::Tensor dropout_factors(const Dropout& draws, const at::Tensor& sequences,
                           const at::Tensor& rows, const at::Tensor& heads, int64_t first,
                           int64_t columns);

}  // namespace longhaul::ops
