#pragma once

#include <cstdint>
#include <optional>

namespace longhaul::format {

// A dim of a tensor splits over the ranks of tensor parallelism ("tp"). A family states
// the split of each parameter (families/), and the functions below compute the parts.
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

/// The heads of an attention. Layers of one model may have different heads.
struct Heads {
  int64_t query = 0;  ///< a multiple of `key`
  int64_t key = 0;
  auto operator<=>(const Heads&) const = default;
};

/// How one parameter splits. A parameter without a split is held whole by every rank and
/// used where features are whole.
struct ShardSplit {
  ShardUnit unit = ShardUnit::Elements;
  int dim = 0;       ///< the dim that splits
  Heads heads = {};  ///< of a split by heads

  bool by_heads() const {
    return unit == ShardUnit::QueryHeads || unit == ShardUnit::KeyHeads;
  }
  bool operator==(const ShardSplit&) const = default;
};

/// The range [begin, end).
struct ShardRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

/// A rank's place in its tp group.
struct TpRank {
  int64_t index = 0;
  int64_t of = 1;  ///< ranks of the group
};

/// Returns range `index` of `count` elements in `parts` contiguous ranges. Sizes differ
/// by at most one, larger ranges first.
ShardRange even_part(int64_t count, int64_t parts, int64_t index);

/// Returns the elements that a rank has of a dim of `size` elements that splits as
/// `split` says. With at least as many key heads as ranks, a rank has whole groups of a
/// key head and its query heads, and the numbers of groups differ by at most one. With
/// fewer key heads, several ranks hold the same key head and share its query heads, and
/// the numbers of such ranks differ by at most one. The heads divide `size`. If there are
/// more ranks than parts, some ranges are empty.
ShardRange part_of(const std::optional<ShardSplit>& split, int64_t size,
                   const TpRank& rank);

}  // namespace longhaul::format
