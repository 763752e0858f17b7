#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/format/shard_split.h"
#include "longhaul/format/tensor_slice.h"

namespace longhaul::layout {

/// A whole tensor and how it splits.
struct SplitTensor {
  format::TensorSlice whole;
  std::optional<format::ShardSplit> split;
};

/// How a model lies on the ranks of a tp group.
struct ShardPlan {
  int64_t tp = 1;
  /// Whether activations between tensor parallel layers are split by tokens.
  bool sequence = false;

  /// `index` is the rank's place in its tp group.
  format::TpRank rank(int64_t index) const { return {index, tp}; }
};

/// The group of ranks that hold the same key head, if there are fewer key heads than
/// ranks.
struct KeyReplica {
  int color = 0;  ///< equal on the ranks of a group, different between groups
  int index = 0;  ///< index of this rank in its group
  int count = 1;
};
/// Returns the group of the ranks that hold the same key heads as `rank`, and the index
/// of `rank` in it, for layers with this number of key heads.
KeyReplica key_replica(int64_t key_heads, const format::TpRank& rank);

/// How the ranks of a tp group that hold the same parameter agree on one gradient.
enum class GradientSum {
  None,         ///< one rank holds the parameter, and its gradient is complete
  First,        ///< every rank forms all of it; that of the first rank is taken
  Tp,           ///< each rank has seen a part of the tokens or features
  KeyReplicas,  ///< a key head held by several ranks, each with some of its query heads
};

/// The part of a parameter that one rank holds.
struct ParameterShard {
  format::TensorSlice slice;
  GradientSum sum = GradientSum::None;
  /// Whether the copy of this rank is the one that norms count and checkpoints save.
  bool counted = true;
};

/// Returns the part of a tensor that rank `index` of the tp group holds. Every rank of
/// the group has a part (layout/rules.h).
ParameterShard plan_parameter(const ShardPlan& plan, SplitTensor tensor, int64_t index);

/// Returns lines for the log about sizes that do not divide ("vocabulary 1009 over tp 4:
/// 253 252 252 252") and about key heads that several ranks hold, each once.
std::vector<std::string> uneven_splits(const ShardPlan& plan,
                                       const std::vector<SplitTensor>& tensors);

}  // namespace longhaul::layout
