#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "longhaul/layout/context.h"
#include "longhaul/ops/attention/attention.h"

// Shapes: B sequences, S positions of a rank, Hq and Hkv heads, D head dim. The positions
// of a rank are C chunks of S / C positions.

namespace longhaul::parallel {

/// What attention keeps of one rank's positions, or its gradients (fp32).
using ops::each_of, ops::KeptPositions;

/// The result of queries for the keys that they have met so far.
struct AttentionSums {
  at::Tensor out;  ///< [B, S, Hq, D] fp32
  /// The logarithm of the sum of exp(scores), fp32: [C, B, Hq, S / C], or [B, Hq, S]
  /// if chunks are joined.
  at::Tensor lse;
};

/// One rank's part of an attention whose sequences lie on several ranks: the rank's own
/// queries against the keys of one rank after the other. Computes without communication
/// and serves one thread. If there is no window, and the kernel can read and write parts
/// of longer tensors, chunks that lie side by side are joined. The keys of a rank then
/// need one call of the kernel instead of two, or instead of three for the rank's own
/// keys. A rank's own keys must come first, because each query sees some of them.
class LocalAttention {
 public:
  /// Begins the attention of the queries `q`. The problem's document_start and
  /// document_end [B, S] are indices of the whole sequence.
  LocalAttention(const layout::ContextLayout& layout, int rank, const at::Tensor& q,
                 const ops::AttentionProblem& problem, bool fused);

  /// Returns the sums before any keys: 0 and minus infinity, or undefined tensors that
  /// the first call of forward makes.
  AttentionSums begin() const;
  /// Returns dq before any keys: zeros, or an undefined tensor that the first call of
  /// backward makes.
  at::Tensor begin_gradient() const;
  /// Adds to `sums` what the keys of rank `source` contribute. Calls `between` after each
  /// pair of chunks, so that the caller can let its communication make progress.
  void forward(int source, const KeptPositions& of_source, AttentionSums& sums,
               const std::function<void()>& between) const;
  /// Adds to dq [B, S, Hq, D] and to `gradients`, the gradients of the keys of rank
  /// `source`; all are fp32. `out` (in the dtype of q) and `lse` are the results over the
  /// keys of all ranks.
  void backward(int source, const KeptPositions& of_source, const at::Tensor& dout,
                const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                const KeptPositions& gradients,
                const std::function<void()>& between) const;

 private:
  struct Pair;
  std::vector<Pair> pairs(int source) const;
  /// Returns one pair, in which all pairs with keys of rank `source` are joined.
  Pair joined(int source) const;
  /// Returns the rows of `lse` that belong to the queries of `pair`, which is one chunk
  /// of queries with one chunk of keys.
  at::Tensor lse_of(const Pair& pair, const at::Tensor& lse) const;

  layout::ContextLayout layout_;
  std::vector<layout::ContextChunk> mine_;
  at::Tensor q_;
  ops::AttentionProblem problem_;
  bool fused_;
  bool joins_;
};

/// Returns zeros for the gradients of the kept tensors `of`, fp32 and contiguous.
KeptPositions zero_gradients(const KeptPositions& of);

}  // namespace longhaul::parallel
