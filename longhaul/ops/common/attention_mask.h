#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <optional>

#include "longhaul/ops/common/dropout_draws.h"

namespace longhaul::ops {

/// The window that means no window, since it is longer than any sequence.
inline constexpr int64_t kNoWindow = int64_t{1} << 62;

/// Where documents begin among the tokens of all sequences, one sequence after another,
/// for kernels that take documents in this form. Known only if the host knows the
/// documents and if the start and the end of the mask show each query exactly its own
/// document.
struct DocumentBounds {
  /// int32 [n + 1], ascending from 0 to the number of tokens; undefined: not known.
  at::Tensor bounds = {};
  int64_t longest = 0;  ///< tokens of the longest document
};

/// Which keys a query sees, which probabilities are dropped, and the factor of the
/// scores. Tensors are contiguous.
struct AttentionMask {
  /// int32 [B, S]: the first key that each query sees; undefined: all 0.
  at::Tensor document_start = {};
  /// The most keys that a query sees, of which the query's own key is the last; at least
  /// 1.
  int64_t window = kNoWindow;
  /// int32 [B, S]: one past the last key that each query sees, which may be later than
  /// the query; there is no window then. Undefined: a query sees keys up to its own
  /// (causal).
  at::Tensor document_end = {};
  /// Drops probabilities after the softmax: rows are queries, columns are keys.
  Dropout dropout = {};
  DocumentBounds documents = {};
  /// The factor of each product of a query and a key before the softmax, finite and above
  /// 0; absent: 1 / sqrt(D). scale_of() reads it.
  std::optional<double> scale = {};
};

/// Returns the factor of the products of queries and keys of `head_dim` features, in the
/// precision T of the caller's arithmetic.
template <typename T>
T scale_of(const AttentionMask& mask, int64_t head_dim) {
  return mask.scale ? static_cast<T>(*mask.scale)
                    : T{1} / std::sqrt(static_cast<T>(head_dim));
}

/// A run of queries and a run of keys of the same sequences. Query i has index
/// query_begin + i of its sequence, and key j has index key_begin + j. A query sees a key
/// iff
///   document_start <= index of the key <= index of the query < index of the key +
///   window,
/// or, where the mask has ends, document_start <= index of the key < document_end.
struct AttentionPart {
  // In these tensors and in the results D has stride 1, the other dims have any strides.
  at::Tensor q;     ///< [B, S, Hq, D]
  at::Tensor k, v;  ///< [B, K, Hkv, D], with the dtype of q
  AttentionMask mask;
  int64_t query_begin = 0;
  int64_t key_begin = 0;
  bool fused = true;
};

}  // namespace longhaul::ops
