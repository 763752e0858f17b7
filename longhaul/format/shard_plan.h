#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/format/tensor_slice.h"

namespace longhaul {

// How the tensors of a model split over the ranks of tensor parallelism ("tp"). A family
// states it of each parameter (families/); everything else follows from here.
// Nothing is ever padded: a vocabulary, a number of heads or an inner size that does not
// divide is split unevenly, so that weights, checkpoints and losses are those of the
// unsplit model, and the largest part decides the time as a padded one would.

/// What is handed out whole to a rank.
enum class ShardUnit {
  Elements,    ///< single rows or columns; parts differ by at most one
  Vocabulary,  ///< as Elements
  QueryHeads,
  KeyHeads,
  /// The tensor is not split but is used where features are (a norm of single heads), so
  /// every rank has a part of its gradient.
  None,
};

/// How one parameter splits. One without is held whole by every rank and used where
/// features are whole.
struct ShardSplit {
  ShardUnit unit = ShardUnit::Elements;
  int dim = 0;  ///< that splits
};

/// A whole tensor and how it splits.
struct SplitTensor {
  TensorSlice whole;
  std::optional<ShardSplit> split;
};

/// [begin, end).
struct ShardRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

/// `count` in `parts` contiguous ranges; sizes differ by at most one, larger ones first.
ShardRange even_part(int64_t count, int64_t parts, int64_t index);

/// The heads of each tp rank. A rank's query heads never straddle key heads in part: with
/// as many key heads as ranks or more, a rank has whole groups (a key head and its query
/// heads), their numbers differing by at most one. With fewer, a key head is held by
/// several ranks, their numbers differing by at most one, which share its query heads.
struct HeadSplit {
  std::vector<ShardRange> query;
  std::vector<ShardRange> key;
};

/// ConfigError when there are more ranks than query heads. query_heads is a multiple of
/// key_heads.
HeadSplit split_heads(int64_t tp, int64_t query_heads, int64_t key_heads);

/// A number of ranks, and a model's heads on them.
struct ShardPlan {
  int64_t tp = 1;
  /// Outside of the regions with split features, activations are split by tokens.
  bool sequence = false;
  int64_t query_heads = 0;
  int64_t key_heads = 0;
  HeadSplit heads;
};

/// ConfigError as split_heads.
ShardPlan make_shard_plan(int64_t query_heads, int64_t key_heads, int64_t tp,
                          bool sequence);

/// The ranks that hold the same key head, where there are fewer key heads than ranks.
struct KeyReplica {
  int color = 0;  ///< equal on the ranks of a group, different between groups
  int index = 0;  ///< of this rank in its group
  int count = 1;
};
KeyReplica key_replica(const ShardPlan& plan, int64_t index);

/// Over which further ranks of the tp group a gradient has to be summed.
enum class GradientSum {
  None,         ///< it is complete, or the same on every rank
  Tp,           ///< each rank has seen a part of the tokens or features
  KeyReplicas,  ///< a key head held by several ranks, each with some of its query heads
};

/// What one rank holds of one parameter.
struct ParameterShard {
  TensorSlice slice;
  GradientSum sum = GradientSum::None;
  /// This rank's copy is the one that norms count and checkpoints save.
  bool counted = true;
};

/// The part of a tensor that rank `index` of the tp group holds. ConfigError where a rank
/// would get nothing.
ParameterShard plan_parameter(const ShardPlan& plan, const SplitTensor& tensor,
                              int64_t index);

/// For the log, each once: what does not divide ("vocabulary 1009 over tp 4: 253 252 252
/// 252") and key heads that several ranks hold.
std::vector<std::string> uneven_splits(const ShardPlan& plan,
                                       const std::vector<SplitTensor>& tensors);

}  // namespace longhaul
