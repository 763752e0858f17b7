#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/families/layers/attention_scores.h"
#include "longhaul/ops/common/dropout_draws.h"

namespace longhaul::ops {

/// Where documents begin among the tokens of all sequences, one sequence after another,
/// for kernels that take documents in this form. The bounds are known only if the host
/// knows the documents, and if document_start and document_end of the problem show each
/// query exactly its own document.
struct DocumentBounds {
  /// int32 [n + 1], ascending from 0 to the number of tokens; undefined: not known.
  at::Tensor bounds = {};
  int64_t longest = 0;  ///< tokens of the longest document
};

/// What one attention computes: the settings that the model fixes (AttentionScores), and
/// those of one call. The head dims and the numbers of heads are not here, since the
/// shapes of queries and keys have them. Tensors are contiguous.
struct AttentionProblem : AttentionScores {
  /// int32 [B, S]: the first key that each query sees; undefined: all 0.
  at::Tensor document_start = {};
  /// int32 [B, S]: one past the last key that each query sees, which may be later than
  /// the query; there is no window then. Undefined: a query sees keys up to its own
  /// (causal).
  at::Tensor document_end = {};
  DocumentBounds documents = {};
  /// Drops probabilities after the softmax: rows are queries, columns are keys.
  Dropout dropout = {};
  /// The index of the first query among all keys; absent: the last keys are the queries'
  /// own. Given where keys lie behind those of the queries.
  std::optional<int64_t> query_begin = {};

  bool causal() const { return !document_end.defined(); }
};

/// The tensors that attention keeps of positions, such as keys and values, for the
/// queries of other ranks and of later calls. Each tensor is [B, positions, ...]. Code
/// that stores, cuts or sends the tensors treats all in the same way, since only
/// attention knows what they are.
using KeptPositions = std::vector<at::Tensor>;

/// Returns f(x) of each tensor.
template <typename F>
KeptPositions each_of(const KeptPositions& kept, const F& f) {
  KeptPositions out;
  for (const at::Tensor& x : kept) out.push_back(f(x));
  return out;
}

/// A range of queries and a range of keys of the same sequences. Query i has index
/// query_begin + i of its sequence, and key j has index key_begin + j. A query sees a key
/// iff
///   document_start <= index of the key <= index of the query < index of the key +
///   window,
/// or, if the problem has ends, document_start <= index of the key < document_end.
struct AttentionPart {
  // In these tensors and in the results the last dim has stride 1, the other dims have
  // any strides.
  at::Tensor q;  ///< [B, S, Hq, D]
  /// Keys [B, K, Hkv, D] and values [B, K, Hkv, width of values], with the dtype of q.
  KeptPositions kept;
  AttentionProblem problem;
  int64_t query_begin = 0;
  int64_t key_begin = 0;
  bool fused = true;
  /// True: the queries see no other keys. False: the results are merged with those of
  /// other parts.
  bool whole = false;

  const at::Tensor& k() const { return kept[0]; }
  const at::Tensor& v() const { return kept[1]; }
};

}  // namespace longhaul::ops
