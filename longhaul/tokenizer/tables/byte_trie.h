#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/tables/flat_maps.h"

namespace longhaul::tokenizer {

/// A map from strings to numbers that finds strings by walking along a text.
class ByteTrie {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  /// Inserts a string; a repeated string gets the last value.
  void insert(std::string_view text, uint32_t value) {
    uint32_t node = 0;
    for (const char c : text) {
      uint32_t& next = edges_[(uint64_t{node} << 8) | static_cast<uint8_t>(c)];
      if (next == 0) {
        next = static_cast<uint32_t>(values_.size());
        values_.push_back(kNone);
      }
      node = next;
    }
    values_[node] = value;
  }
  bool empty() const { return values_.size() == 1; }

  /// Calls visit(end, value) for each string that stands in `text` at `pos`, the shortest
  /// first. `end` is the end of the string in the text.
  template <typename Visit>
  void each_prefix(std::string_view text, size_t pos, Visit&& visit) const {
    uint32_t node = 0;
    while (pos < text.size()) {
      const uint32_t* next =
          edges_.find((uint64_t{node} << 8) | static_cast<uint8_t>(text[pos]));
      if (!next) return;
      node = *next;
      ++pos;
      if (values_[node] != kNone) visit(pos, values_[node]);
    }
  }
  struct Found {
    size_t end;
    uint32_t value = kNone;
  };
  /// Returns the longest string of the map that stands in `text` at `pos`. Its `end` is
  /// `pos` if there is none.
  Found longest(std::string_view text, size_t pos) const {
    Found found{pos};
    each_prefix(text, pos, [&](size_t end, uint32_t value) { found = {end, value}; });
    return found;
  }

 private:
  FlatMap<uint32_t> edges_;  // (node, byte) -> node
  std::vector<uint32_t> values_{kNone};
};

}  // namespace longhaul::tokenizer
