#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <optional>

#include "longhaul/ops/dropout.h"

namespace longhaul::ops {

/// Longer than any sequence.
inline constexpr int64_t kNoWindow = int64_t{1} << 62;

/// Where documents begin among the tokens of all sequences, one after another, where the
/// host knows it and each query's document is all that the mask's start and end hide or
/// show: int32 [n + 1], ascending from 0, the last is the number of tokens. For kernels
/// that take documents so; undefined: not known.
struct DocumentBounds {
  at::Tensor bounds = {};
  int64_t longest = 0;  ///< tokens of a document
};

/// Which keys a query sees, which of those count, and by what their scores are
/// multiplied. Tensors are contiguous.
struct AttentionMask {
  at::Tensor document_start = {};  ///< [B, S] int32: from this one on; undefined: all 0
  /// So many at most, its own the last; at least 1.
  int64_t window = kNoWindow;
  /// [B, S] int32: each query sees keys before this one, also those later than itself,
  /// and has no window; undefined: up to its own (causal).
  at::Tensor document_end = {};
  /// Of the probabilities, after the softmax: rows are queries, columns are keys.
  Dropout dropout = {};
  DocumentBounds documents = {};
  /// What each product of a query and a key is multiplied by before the softmax: finite
  /// and above 0; absent: 1 / sqrt(D). Use scale_of() to read it.
  std::optional<double> scale = {};
};

/// What the products of queries and keys of `head_dim` features are multiplied by, in the
/// precision T of the caller's arithmetic.
template <typename T>
T scale_of(const AttentionMask& mask, int64_t head_dim) {
  return mask.scale ? static_cast<T>(*mask.scale)
                    : T{1} / std::sqrt(static_cast<T>(head_dim));
}

/// A run of queries and a run of keys of the same sequences. Query i has index
/// query_begin + i of its sequence and key j has key_begin + j; a query sees a key iff
/// document_start <= index of the key <= index of the query < index of the key + window,
/// or document_start <= index of the key < document_end.
struct AttentionPart {
  at::Tensor q;     ///< [B, S, Hq, D], any strides but 1 for D; so all others
  at::Tensor k, v;  ///< [B, K, Hkv, D], dtype as q
  AttentionMask mask;
  int64_t query_begin = 0;
  int64_t key_begin = 0;
  bool fused = true;
};

}  // namespace longhaul::ops
