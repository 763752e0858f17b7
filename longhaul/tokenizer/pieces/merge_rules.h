#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/tokenizer/tables/flat_maps.h"

namespace longhaul::tokenizer {

/// Two neighbouring symbols that become one.
struct Merge {
  uint32_t left;
  uint32_t right;
  uint32_t result;
};

/// The merges of a BPE vocabulary: the rank of each pair and its result. Immutable once
/// filled; any number of threads may use the rules.
class MergeRules {
 public:
  MergeRules() = default;
  /// Takes the index of each merge in the list as its rank.
  explicit MergeRules(const std::vector<Merge>& merges);
  /// Adds a merge. The lowest rank is merged first, the leftmost pair among equals. The
  /// rank must not be UINT32_MAX.
  void add(const Merge& merge, uint32_t rank);

  /// Merges `count` symbols in place until no rule applies, and returns how many are
  /// left.
  size_t merge(uint32_t* symbols, size_t count) const;
  /// Merges the symbols of `out` from `start` on.
  void merge(std::vector<uint32_t>& out, size_t start) const {
    out.resize(start + merge(out.data() + start, out.size() - start));
  }
  /// The first merge among `count` symbols: that of the symbols at `place` and `place`
  /// + 1.
  struct Step {
    size_t place;
    uint32_t rank;
    uint32_t result;
  };
  std::optional<Step> best(const uint32_t* symbols, size_t count) const;

 private:
  struct Rule {
    uint32_t rank = UINT32_MAX;
    uint32_t result = 0;
  };
  static constexpr uint32_t kNoRank = UINT32_MAX;
  /// Returns the rule of a pair, with the rank kNoRank if the two do not merge.
  Rule rule(uint32_t left, uint32_t right) const {
    if ((left | right) < direct_ids_) return direct_[left * direct_ids_ + right];
    const uint64_t pair = (uint64_t{left} << 32) | right;
    const uint64_t bit = filter_bit(pair);
    if ((filter_[bit / 64] >> (bit % 64) & 1) == 0) return {};
    const Rule* found = rules_.find(pair);
    return found ? *found : Rule{};
  }
  static uint64_t filter_bit(uint64_t pair) {
    return (pair * 0xD6E8FEB86659FD93u) >> (64 - kFilterBits);
  }
  size_t merge_long(uint32_t* symbols, size_t count) const;

  static constexpr int kFilterBits = 21;

  FlatMap<Rule> rules_;
  /// A bit per hash of a pair. Most pairs do not merge, and the bits say so in less
  /// memory than the rules.
  std::vector<uint64_t> filter_ = std::vector<uint64_t>((size_t{1} << kFilterBits) / 64);
  /// The rules of pairs of ids below this number, which include the ids of bytes, also
  /// stand in the square table direct_. The number is a power of two, or 0 without the
  /// table.
  uint32_t direct_ids_ = 0;
  std::vector<Rule, LargePages<Rule>> direct_;
};

}  // namespace longhaul::tokenizer
