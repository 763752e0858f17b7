#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/format/tensor_slice.h"

namespace longhaul::format {

// How the tensors of a model split over the ranks of tensor parallelism ("tp"). A family
// states the split of each parameter (families/); everything else follows from here.
// Nothing is padded: a vocabulary, a number of heads or an inner size that does not
// divide is split unevenly. So weights, checkpoints and losses are those of the unsplit
// model, and the largest part takes the time that a padded part would take.

/// The unit that a rank gets as a whole.
enum class ShardUnit {
  Elements,    ///< single rows or columns; parts differ by at most one
  Vocabulary,  ///< rows of the vocabulary, split like Elements
  QueryHeads,
  KeyHeads,
  /// The tensor is not split but is used where features are split (a norm of single
  /// heads), so that every rank has a part of its gradient.
  None,
};

/// How one parameter splits. A parameter without a split is held whole by every rank and
/// used where features are whole.
struct ShardSplit {
  ShardUnit unit = ShardUnit::Elements;
  int dim = 0;  ///< the dim that splits
};

/// A whole tensor and how it splits.
struct SplitTensor {
  TensorSlice whole;
  std::optional<ShardSplit> split;
};

/// The range [begin, end).
struct ShardRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

/// Returns range `index` of `count` elements in `parts` contiguous ranges. Sizes differ
/// by at most one, larger ranges first.
ShardRange even_part(int64_t count, int64_t parts, int64_t index);

/// The heads of each tp rank. With at least as many key heads as ranks, a rank has whole
/// groups of a key head and its query heads, and the numbers of groups differ by at most
/// one. With fewer key heads, several ranks hold the same key head and share its query
/// heads, and the numbers of such ranks differ by at most one.
struct HeadSplit {
  std::vector<ShardRange> query;
  std::vector<ShardRange> key;
};

/// Splits heads over ranks. query_heads is a multiple of key_heads. Throws ConfigError if
/// there are more ranks than query heads.
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

/// Makes a plan. Throws like split_heads.
ShardPlan make_shard_plan(int64_t query_heads, int64_t key_heads, int64_t tp,
                          bool sequence);

/// The group of ranks that hold the same key head, if there are fewer key heads than
/// ranks.
struct KeyReplica {
  int color = 0;  ///< equal on the ranks of a group, different between groups
  int index = 0;  ///< index of this rank in its group
  int count = 1;
};
KeyReplica key_replica(const ShardPlan& plan, int64_t index);

/// How a gradient becomes one on the ranks of the tp group that hold the parameter.
enum class GradientSum {
  None,         ///< one rank holds the parameter, and its gradient is complete
  First,        ///< every rank has formed all of it, and the first rank's counts
  Tp,           ///< each rank has seen a part of the tokens or features
  KeyReplicas,  ///< a key head held by several ranks, each with some of its query heads
};

/// The part of a parameter that one rank holds.
struct ParameterShard {
  TensorSlice slice;
  GradientSum sum = GradientSum::None;
  /// Norms count and checkpoints save the copy of this rank.
  bool counted = true;
};

/// Returns the part of a tensor that rank `index` of the tp group holds. Throws
/// ConfigError if a rank would get nothing.
ParameterShard plan_parameter(const ShardPlan& plan, const SplitTensor& tensor,
                              int64_t index);

/// Returns lines for the log about sizes that do not divide ("vocabulary 1009 over tp 4:
/// 253 252 252 252") and about key heads that several ranks hold, each once.
std::vector<std::string> uneven_splits(const ShardPlan& plan,
                                       const std::vector<SplitTensor>& tensors);

}  // namespace longhaul::format
