#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/data/tokenizer/flat_maps.h"

namespace longhaul::data {

/// Two neighbouring symbols that become one.
struct Merge {
  uint32_t left;
  uint32_t right;
  uint32_t result;
};

/// The merges of a BPE vocabulary: which pair first, and what it becomes. Immutable once
/// filled; any number of threads.
class MergeRules {
 public:
  MergeRules() = default;
  /// Ranks are places in the list.
  explicit MergeRules(const std::vector<Merge>& merges);
  /// The lowest rank is merged first, the leftmost among equals. Not UINT32_MAX.
  void add(const Merge& merge, uint32_t rank);

  /// Merges `count` symbols in place until no rule applies; how many are left.
  size_t merge(uint32_t* symbols, size_t count) const;
  /// The same for the symbols of `out` from `start` on.
  void merge(std::vector<uint32_t>& out, size_t start) const {
    out.resize(start + merge(out.data() + start, out.size() - start));
  }
  /// The merge that comes first among `count` symbols, if any: that of the symbols at
  /// `place` and behind it.
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
  const Rule* rule(uint32_t left, uint32_t right) const {
    return rules_.find((uint64_t{left} << 32) | right);
  }
  size_t merge_long(uint32_t* symbols, size_t count) const;

  FlatMap<Rule> rules_;
};

}  // namespace longhaul::data
