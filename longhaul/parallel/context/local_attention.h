#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "longhaul/layout/context.h"
#include "longhaul/ops/attention/attention.h"

// Shapes: B sequences, S positions of a rank, Hq and Hkv heads, D head dim; a rank's
// positions are C chunks of S / C.

namespace longhaul::parallel {

/// Keys and values that one rank holds, or their gradients (fp32): [B, S, Hkv, D].
struct KeyValues {
  at::Tensor keys;
  at::Tensor values;
};

/// The result of queries under way, for the keys seen so far.
struct AttentionSums {
  at::Tensor out;  ///< [B, S, Hq, D] fp32
  /// Log of the sum of exp(scores), fp32: [C, B, Hq, S / C], or [B, Hq, S] where chunks
  /// are joined.
  at::Tensor lse;
};

/// One rank's part of an attention whose sequences lie on several ranks: its own queries
/// against the keys of one rank after the other. No communication in here; one thread.
/// Where a mask is causality alone and kernels take rows of a longer result, chunks that
/// lie side by side are joined: one call for each rank's keys, else two, and three for
/// its own. A rank's own keys come first: each of its queries sees some.
class LocalAttention {
 public:
  /// The mask's document_start and document_end [B, S] hold indices of the whole
  /// sequence.
  LocalAttention(const ContextLayout& layout, int rank, const at::Tensor& q,
                 const ops::AttentionMask& mask, bool fused);

  /// No keys seen: 0 and minus infinity, or undefined: the first ones make them.
  AttentionSums begin() const;
  /// For dq, likewise.
  at::Tensor begin_gradient() const;
  /// Takes the keys of rank `source` into `sums`. `between` is called after each pair of
  /// chunks: the place to drive communication that is under way.
  void forward(int source, const KeyValues& of_source, AttentionSums& sums,
               const std::function<void()>& between) const;
  /// Adds to dq [B, S, Hq, D] and to the gradients of `source`'s keys and values, all
  /// fp32. `out` (dtype of q) and `lse` are those over the keys of all ranks.
  void backward(int source, const KeyValues& of_source, const at::Tensor& dout,
                const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                KeyValues& gradients, const std::function<void()>& between) const;

 private:
  struct Pair;
  std::vector<Pair> pairs(int source) const;
  /// All pairs of the keys of `source` in one.
  Pair joined(int source) const;
  /// The rows of a pair's queries.
  at::Tensor lse_of(const Pair& pair, const at::Tensor& lse) const;

  ContextLayout layout_;
  std::vector<ContextChunk> mine_;
  at::Tensor q_;
  ops::AttentionMask mask_;
  bool fused_;
  bool joins_;
};

/// Zeros for the gradients of keys and values, fp32 and contiguous.
KeyValues zero_gradients(const KeyValues& of);

}  // namespace longhaul::parallel
